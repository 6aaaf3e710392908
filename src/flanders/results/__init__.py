"""The results of runs: the results file, its summary, its export."""
