"""Linear algebra on the models of a round.

Filters, aggregators and attacks do not read (m, d) arrays block by block themselves. They call functions of this
room, or use expressions on whole arrays, such as `g + scale * (updates - g)`.
"""
