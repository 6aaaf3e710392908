"""The leaderboard: every defence against every attack, with the same settings for all.

These settings, the attacks and the seeds are the protocol (`protocol.toml`). `defences.toml` lists the defences of
this package. Authors of other defences describe theirs in a file of the same form. The files in `rows/` have one
row for each finished run. The command `flanders leaderboard table` computes the standings from the rows.
"""
