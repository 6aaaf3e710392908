"""The tables and figures of the FLANDERS paper: their experiments, the published values, and our values.

The command `flanders reproduce` runs the experiments and compares the values.
"""
