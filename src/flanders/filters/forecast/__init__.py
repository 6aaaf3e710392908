"""The filter of the paper: forecast the models of a round, drop the clients far from the forecast."""
