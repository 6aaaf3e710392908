"""Studies: questions that the paper asks or leaves for later, each answered by a grid of runs."""
