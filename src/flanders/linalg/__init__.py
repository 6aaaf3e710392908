"""Linear algebra on the models of a round: an array of shape `(m, d)`, with a row for each of m clients.

The functions read large arrays in blocks of columns, so that no copy of a whole array is needed. Filters,
aggregators and attacks call these functions. Simple expressions on whole arrays, such as
`g + scale * (updates - g)` with the global model g, need no function.
"""
