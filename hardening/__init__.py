"""Programs that attack this package on purpose: hostile input, faults, long runs and heavy load."""
