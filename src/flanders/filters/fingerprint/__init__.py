"""The filter that needs no number of attackers: it compares each update with its sender's earlier ones.

The filter itself is in `fingerprint`. `questions` measures the updates of a round, and `crowd` looks for a group of
clients with too much in common. `decision` turns the answers into scores, `explanation` puts them into words, and
`learning` updates the `memory`.
"""
