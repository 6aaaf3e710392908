"""Linear algebra on the models of a round; the only room that reads all m x d numbers."""
