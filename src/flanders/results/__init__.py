"""The results of runs: the results file, how it is written and read, summaries, and export."""
