"""Studies: questions that the FLANDERS paper asks or leaves open. A grid of runs answers each of them."""
