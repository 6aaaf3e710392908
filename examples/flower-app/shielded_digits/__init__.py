"""A Flower app in which ten clients learn handwritten digits. Three of the clients send poisoned models."""
