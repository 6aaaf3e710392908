"""The filter `Flanders` of the FLANDERS paper.

It forecasts the models of a round, and drops the clients whose models are far from their forecasts. The modules:

- `flanders`: the class `Flanders`.
- `history`: remembers the models of earlier rounds.
- `look`: chooses which parameters of the models are compared.
- `solver`: computes the forecasts.
- `scoring`: measures the distances of the models to their forecasts.
- `calibration`: turns these distances into probabilities.
"""
