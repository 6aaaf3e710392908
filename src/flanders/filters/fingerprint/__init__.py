"""The filter `Fingerprint`, which compares each client's update with the client's earlier updates.

The modules:

- `fingerprint`: the class `Fingerprint`.
- `questions`: measures the updates of a round.
- `crowd`: looks for a group of clients that have too much in common.
- `decision`: turns the measurements into scores.
- `explanation`: says in words why a score is high.
- `memory`: what the filter remembers.
- `learning`: updates the memory after a round.
"""
