"""The filters `Guard` and `Camps`, which compare the clients of a round with each other.

If the clients form two groups that differ clearly, these groups are called camps. Some rules say which camp is
wrong, and the clients of this camp are dropped. You need not tell the filters the number of attackers, and they
work from the first round on. The modules, in the order of the work:

- `crafted`: finds updates that no training makes, such as copies with or without noise.
- `loud`: finds updates that are too long.
- `directions`: measures how much each client's update points in the direction of the others' updates.
- `averages`: averages such measurements over the rounds of a client.
- `traits`: measures the clients. Each kind of measurement is a trait. It has one number for each client, or
  several.
- `inputs`: has another trait: how much each client learns from an input of the first layer.
- `classes`: says whether clients have mostly one class each. If so, the directions of their updates form no camps.
- `splitting`: says whether the numbers of a trait form two camps or one.
- `judging`: says which of two camps is wrong.
- `opposing`: finds clients whose updates point against those of the others, round after round.
- `unhelpful`: finds clients that do not help the server's examples, such as those with wrong labels.
- `decision`: drops one wrong camp after the other, then the opposing clients.
- `guard`: the filter `Guard`, which also compares each client with its own past.
- `camps`: the filter `Camps`, which does not compare clients with their own past.
"""
