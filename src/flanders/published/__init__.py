"""What the code published with the paper computes, to match its numbers; not for judging a defence."""
