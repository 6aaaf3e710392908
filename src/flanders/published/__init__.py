"""What the code published with the paper computes, to match its numbers. Do not use it to judge a defense."""
