"""The filters `Guard` and `Camps`: they cut a round into two camps of clients and ask a judge which camp is wrong.

They need no number of attackers, and they work from the first round on. The modules, in the order of the work:

- `crafted`: finds updates that no training makes, such as copies with or without noise on top.
- `traits`: measures the clients; a trait is one number for each client.
- `splitting`: says whether the numbers of a trait form two camps or one.
- `judging`: says which of two camps is wrong.
- `opposing`: finds clients that point against the others, round after round.
- `decision`: drops one wrong camp after the other, then the opposing clients.
- `guard`: the filter that also remembers what each client sent before.
- `camps`: the filter that remembers no client's past.
"""
