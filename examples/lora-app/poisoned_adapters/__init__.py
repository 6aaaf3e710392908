"""Low-rank adapters of a small transformer, learned by ten clients. Three of them send poison."""
