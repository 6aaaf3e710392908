"""Handwritten digits, learned by ten clients. Three of them send poison."""
