"""The filter `Fingerprint`, which compares each client's update with the client's earlier updates.

The class is in `fingerprint`. `questions` measures the updates of a round. `crowd` looks for a group of clients
that have too much in common. `decision` turns the measurements into scores, and `explanation` puts them into words.
`memory` has what the filter remembers, and `learning` updates it after a round.
"""
