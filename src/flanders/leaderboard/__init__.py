"""The leaderboard: every defence against every attack under one fixed protocol.

`protocol.toml` fixes what is run. `defences.toml` lists the defences of this package, in the form in which others
add theirs. The runs are ordinary runs of `flanders.experiments`. `rows/` holds one row for each finished run, and
`flanders leaderboard table` turns rows into standings.
"""
