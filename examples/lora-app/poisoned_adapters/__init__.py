"""A Flower app in which ten clients train low-rank adapters (LoRA) of a small transformer.

Three of the clients send poisoned adapters.
"""
