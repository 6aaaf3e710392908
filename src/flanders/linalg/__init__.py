"""Linear algebra on the models of a round.

Of the core packages (aggregators, attacks, filters, published), only this one reads (m, d) arrays block by block.
The others use expressions on whole arrays, such as `g + scale * (updates - g)`.
"""
