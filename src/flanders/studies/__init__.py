"""Studies: questions that the FLANDERS paper asks or leaves open, each answered by a set of runs.

The command `flanders study` carries out the runs of a study.
"""
