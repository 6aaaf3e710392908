"""Linear algebra on the models of a round.

In the core (aggregators, attacks, filters, published), this is the only room that goes through all m x d numbers
block by block. Elsewhere stand whole-array expressions only, such as `g + scale * (updates - g)`.
"""
