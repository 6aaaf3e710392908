"""The filter `Fingerprint`, which compares each update with its sender's earlier ones.

The class is in `fingerprint`. `questions` measures the updates of a round. `crowd` looks for a group of clients
with too much in common. `decision` turns the measurements into scores, `explanation` puts them into words, and
`learning` updates the `memory`.
"""
