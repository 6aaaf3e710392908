"""Two camps and a judge: whom to drop in a round, from the first round on.

- `crafted`: rows that no training makes, such as copies with or without noise.
- `splitting`: is a list of numbers, one a client, two camps or one?
- `looks`: the numbers that are looked at.
- `judging`: which of two camps is right.
- `decision`: one decision out of all of these.
"""
