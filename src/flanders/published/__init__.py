"""Attacks and defences as the code published with the paper computes them. Do not use them to judge a defence."""
