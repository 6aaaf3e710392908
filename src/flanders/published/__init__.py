"""Attacks and defences as the code published with the FLANDERS paper computes them, mistakes included.

Use them to reproduce the numbers of the paper, not to judge a defence.
"""
