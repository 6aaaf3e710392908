"""Attacks and defences as the code published with the FLANDERS paper computes them, with its mistakes.

Use them to repeat the numbers of the paper. To judge a defence, use `flanders.attacks`, `flanders.filters` and
`flanders.aggregators`.

One module is different: `fldetector` is our guess at a filter that the paper used, since the code of this filter is
not published.
"""
