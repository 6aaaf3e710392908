"""A federation in which some clients do not behave."""
