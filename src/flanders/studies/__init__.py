"""Studies: questions that the paper asks or leaves for later, each put to a few commands' worth of runs."""
