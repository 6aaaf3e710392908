"""Local training of all clients of a round at once."""
