"""What every data poison in the registry promises, whatever it does."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
import torch

from flanders.checks import InputError
from flanders.data import BreastCancer, Characters, Iid
from flanders.models import Logistic
from flanders.simulation import DATA_POISONS, Simulation
from flanders.simulation.poisoning import Scope
from settings import make_setting

SHAPES = {"images": (3, 6, 6), "text": (5, 4), "table": (12,)}
every_poison = pytest.mark.parametrize("name", list(DATA_POISONS))
every_shape = pytest.mark.parametrize("shape", list(SHAPES))


def batch(shape, n=3, size=20):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((n, size, *SHAPES[shape]), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, (n, size)))
    return x, y, torch.arange(n * size).view(n, size), torch.arange(n)


def prepared(poison, x, y):
    scope = Scope(10, float(x.max()), float(x.min()))
    return dataclasses.replace(scope, learned=poison.prepare(x.flatten(0, 1), y.flatten(), scope))


@every_poison
@every_shape
def test_the_order_of_examples_does_not_matter_and_nothing_is_changed_in_place(name, shape):
    poison, (x, y, examples, clients) = DATA_POISONS.make(name), batch(shape)
    scope = prepared(poison, x, y)
    before = [t.clone() for t in (x, y, examples, clients)]
    new_x, new_y = poison.change(x, y, examples, clients, scope)
    again_x, again_y = poison.change(x.flip(1), y.flip(1), examples.flip(1), clients, scope)
    assert all(torch.equal(a, b) for a, b in zip((x, y, examples, clients), before, strict=True))
    assert torch.equal(again_x.flip(1), new_x)
    assert torch.equal(again_y.flip(1), new_y)
    assert (new_x.shape, new_x.dtype, new_y.shape, new_y.dtype) == (x.shape, x.dtype, y.shape, y.dtype)
    assert bool(torch.isfinite(new_x).all())
    assert 0 <= int(new_y.min()) <= int(new_y.max()) < 10
    assert not (torch.equal(new_x, x) and torch.equal(new_y, y))


@every_poison
@every_shape
def test_what_it_aims_at_are_test_examples_of_other_classes_than_the_target(name, shape):
    poison, (x, y, *_) = DATA_POISONS.make(name), batch(shape)
    aimed = poison.aim(x[0], y[0], prepared(poison, x, y))
    if aimed is None:
        assert name in {"label-flip", "label-pairs", "random-labels", "dynamic-flip"}
        return
    shown, target, counts = aimed
    assert shown.shape == x[0].shape
    assert counts.dtype == torch.bool
    assert bool((target[counts] != y[0][counts]).all())


@every_poison
@pytest.mark.parametrize(
    ("dataset", "partition"), [(BreastCancer(), Iid()), (Characters(num_samples=300, num_test=60), Iid())], ids=str
)
def test_it_runs_on_data_without_images_and_gives_the_same_bytes_again(name, dataset, partition):
    target = {"target": 0} if "target" in DATA_POISONS.describe(name).parameters else {}
    source = {"source": 1} if "source" in DATA_POISONS.describe(name).parameters else {}
    poison = DATA_POISONS.make(name, **target, **source)
    fields = {"dataset": dataset, "partition": partition, "model": Logistic(), "num_clients": 5, "rounds": 2}
    runs = [Simulation(make_setting(**fields, data_poison=poison, fraction=0.4)) for _ in range(2)]
    for simulation in runs:
        *_, last = simulation.run()
        assert np.isfinite(last.accuracy)
    assert torch.equal(runs[0].model, runs[1].model)


@every_poison
def test_it_describes_itself_with_a_paper_and_an_example(name):
    kind = DATA_POISONS[name]
    text = inspect.getdoc(kind)
    assert DATA_POISONS.describe(name).summary.endswith((".", ")."))
    assert "References\n----------" in text
    assert ">>> " in text
    assert ":math:" in text or ".. math::" in text
    with pytest.raises(InputError, match="has no parameter 'strenght'"):
        DATA_POISONS.make(name, strenght=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        DATA_POISONS.make(name).anything = 1
