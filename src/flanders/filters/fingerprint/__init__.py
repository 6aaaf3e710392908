"""The filter that holds each update against what its own sender has sent before."""
