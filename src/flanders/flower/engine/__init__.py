"""The simulator with its clients on Flower's simulation runtime."""
