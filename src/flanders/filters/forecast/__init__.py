"""The filter of the FLANDERS paper: forecast the models of a round, and drop the clients far from the forecast."""
