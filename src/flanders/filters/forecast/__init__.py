"""The filter `Flanders` of the FLANDERS paper.

It forecasts the models of a round, and drops the clients whose models are far from the forecast. The class is in
`flanders`. `history` remembers rounds, `look` chooses which parameters are compared, `solver` computes the
forecast, `scoring` measures the distances to it, and `calibration` turns distances into probabilities.
"""
