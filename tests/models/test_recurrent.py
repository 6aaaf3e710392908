from __future__ import annotations

import torch

from flanders.data import BreastCancer, Characters
from flanders.models import Gru, Logistic
from flanders.simulation import Simulation, Training
from settings import make_setting


def test_it_computes_what_pytorchs_own_layer_does():
    torch.manual_seed(0)
    ours, theirs = Gru(hidden=7).build((9, 5), 3), torch.nn.GRU(5, 7, batch_first=True)
    with torch.no_grad():
        for mine, other in (
            (ours.input.weight, theirs.weight_ih_l0),
            (ours.input.bias, theirs.bias_ih_l0),
            (ours.state.weight, theirs.weight_hh_l0),
            (ours.state.bias, theirs.bias_hh_l0),
        ):
            mine.copy_(other)
    x = torch.randn(4, 9, 5)
    torch.testing.assert_close(ours(x), ours.head(theirs(x)[0][:, -1]))


def test_clients_learn_text_together():
    text = Characters(num_samples=2400, num_test=300, authors=6, context=6)
    training = Training(learning_rate=1e-2, batch_size=16, epochs=2)
    fields = {"dataset": text, "model": Gru(hidden=32), "training": training, "num_clients": 6, "rounds": 8}
    first, *_, last = Simulation(make_setting(**fields)).run()
    assert first.accuracy < 0.3
    assert last.accuracy > 0.42  # always guessing a space gives 0.16


def test_clients_learn_a_table_together():
    fields = {"dataset": BreastCancer(), "model": Logistic(), "training": Training(learning_rate=1e-2)}
    *_, last = Simulation(make_setting(**fields, num_clients=10, rounds=8)).run()
    assert last.accuracy > 0.9  # always guessing the larger class gives 0.63
