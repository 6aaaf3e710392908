"""The Flower app of `hardening.load`: a federation in which some clients misbehave."""
