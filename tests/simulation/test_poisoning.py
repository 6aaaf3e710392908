from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.checks import InputError
from flanders.data import Digits, Iid
from flanders.filters import DistanceToGlobal
from flanders.simulation import (
    DATA_POISONS,
    Backdoor,
    BlendedBackdoor,
    Dba,
    LabelFlip,
    LabelPairs,
    RandomLabels,
    Simulation,
    TargetedFlip,
    Training,
    World,
)
from flanders.simulation.poisoning import Poisoner, Scope
from settings import make_setting

SCOPE = Scope(num_classes=10, highest=2.5)


def batch(n=3, size=40, shape=(1, 6, 6)):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((n, size, *shape), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, (n, size)))
    return x, y, torch.arange(n * size).view(n, size), torch.arange(n)


def test_label_flip_turns_classes_round_for_poisoned_clients_only():
    x, y, examples, clients = batch()
    poisoner = Poisoner(LabelFlip(), SCOPE)
    new_x, new_y = poisoner.apply(x, y, examples, clients, torch.tensor([False, True, False]))
    assert new_x is x
    assert torch.equal(new_y[1], 9 - y[1])
    assert torch.equal(new_y[[0, 2]], y[[0, 2]])


def test_a_backdoor_puts_the_patch_and_the_target_on_its_share_of_examples():
    x, y, examples, clients = batch(size=400)
    before = x.clone()
    new_x, new_y = Poisoner(Backdoor(target=7, size=2, share=0.25), SCOPE).apply(
        x, y, examples, clients, torch.tensor([True, False, True])
    )
    assert torch.equal(x, before)
    assert torch.equal(new_x[1], x[1])
    changed = (new_x != x).flatten(2).any(2)
    assert float(changed[[0, 2]].float().mean()) == pytest.approx(0.25, abs=0.05)
    assert bool((new_y[changed] == 7).all())
    assert torch.equal(new_y[~changed], y[~changed])
    assert bool((new_x[changed][..., -2:, -2:] == 2.5).all())
    assert torch.equal(new_x[..., :-2, :], x[..., :-2, :])


def test_an_example_is_triggered_in_every_round_or_in_none():
    x, y, examples, clients = batch()
    poison = Backdoor(share=0.5)
    first = poison.change(x, y, examples, clients, SCOPE)
    again = poison.change(x.flip(1), y.flip(1), examples.flip(1), clients, SCOPE)
    assert torch.equal(first[0], again[0].flip(1))


def test_model_replacement_scales_the_step_so_that_the_average_becomes_it():
    g = torch.tensor([1.0, 1.0])
    trained = torch.tensor([[2.0, 0.0]])
    honest = torch.ones(4, 2)
    sent = Backdoor().send(trained, g, num_clients=5)
    torch.testing.assert_close(torch.cat([honest, sent]).mean(0), trained[0])
    torch.testing.assert_close(Backdoor(boost=2.0).send(trained, g, 5), torch.tensor([[3.0, -1.0]]))
    assert LabelFlip().send(trained, g, 5) is trained


@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 6, 6), (36,)])
def test_the_parts_of_a_distributed_trigger_make_up_the_whole(shape):
    poison = Dba(size=4, parts=4, share=1.0)
    x = torch.zeros(6, 2, *shape)
    new_x, _ = poison.change(
        x, torch.zeros(6, 2, dtype=torch.int64), torch.zeros(6, 2, dtype=torch.int64), torch.arange(6), SCOPE
    )
    worn = (new_x != 0)[:, 0]
    whole = poison.patch(shape, x.device)
    assert torch.equal(worn[:4].any(0), whole)
    assert int(worn[:4].sum()) == int(whole.sum())  # no pixel is worn twice
    assert torch.equal(worn[0], worn[4])
    assert (worn.flatten(1).sum(1) > 0).all()


def test_the_test_shows_the_whole_trigger_and_leaves_out_images_of_the_target():
    x, y = torch.zeros(5, 1, 6, 6), torch.tensor([0, 1, 2, 0, 4])
    shown, target, counts = Dba(target=0).aim(x, y, SCOPE)
    assert bool((shown[:, :, -4:, -4:] == 2.5).all())
    assert target.tolist() == [0] * 5
    assert counts.tolist() == [False, True, True, False, True]
    assert LabelFlip().aim(x, y, SCOPE) is None


def test_a_target_that_does_not_exist_is_named():
    x, y, examples, clients = batch()
    with pytest.raises(InputError, match="0 to 9"):
        Backdoor(target=10).change(x, y, examples, clients, SCOPE)


@pytest.mark.parametrize(
    ("name", "parameters"), [("backdoor", {}), ("dba", {}), ("blended-backdoor", {"alpha": 0.5})]
)
def test_a_backdoor_takes_hold_without_defence_and_not_with_one(name, parameters):
    poison = DATA_POISONS.make(name, target=3, **parameters)
    base = {
        "partition": Iid(),
        "training": Training(epochs=3),
        "num_clients": 10,
        "rounds": 5,
        "device": "cpu",
        "data_poison": poison,
        "fraction": 0.4,
        "rotating": False,
        "start": 2,
    }
    open_, guarded = (
        list(Simulation(make_setting(**base, **more)).run())
        for more in ({}, {"filter": DistanceToGlobal(keep=0.6)})
    )
    assert open_[0].attack_success < 0.3
    assert open_[-1].attack_success > 0.9
    assert open_[-1].accuracy > 0.8
    assert guarded[-1].attack_success < 0.3
    assert [int(r.malicious.sum()) for r in open_] == [0, 4, 4, 4, 4]


def test_label_flip_hurts_accuracy():
    base = {"partition": Iid(), "training": Training(epochs=3), "num_clients": 5, "rounds": 3, "device": "cpu"}
    clean = list(Simulation(make_setting(**base)).run())
    flipped = list(Simulation(make_setting(**base, data_poison=LabelFlip(), fraction=0.6)).run())
    assert clean[-1].accuracy > 0.85 > 0.5 > flipped[-1].accuracy


@pytest.mark.parametrize(("num_classes", "swapped"), [(4, [1, 0, 3, 2]), (5, [1, 0, 3, 2, 4])])
def test_pairs_of_labels_are_swapped(num_classes, swapped):
    x, _, examples, clients = batch(1, num_classes)
    y = torch.arange(num_classes)[None]
    assert LabelPairs().change(x, y, examples, clients, Scope(num_classes, 1.0))[1].tolist() == [swapped]


def test_random_labels_are_wrong_and_stay_the_same():
    x, y, examples, clients = batch(size=2000)
    found = RandomLabels().change(x, y, examples, clients, SCOPE)[1]
    assert bool((found != y).all())
    assert bool(((found >= 0) & (found < 10)).all())
    counts = torch.bincount(((found - y) % 10).flatten(), minlength=10)
    assert int(counts[1:].min()) > 500  # every wrong label is about as frequent
    again = RandomLabels().change(x.flip(1), y.flip(1), examples.flip(1), clients, SCOPE)[1]
    assert torch.equal(again.flip(1), found)
    some = RandomLabels(share=0.3).change(x, y, examples, clients, SCOPE)[1]
    assert float((some != y).double().mean()) == pytest.approx(0.3, abs=0.03)


def test_a_targeted_flip_changes_one_class_and_is_tested_on_it():
    x, y, examples, clients = batch()
    poison = TargetedFlip(source=3, target=5)
    found = poison.change(x, y, examples, clients, SCOPE)[1]
    assert torch.equal(found, torch.where(y == 3, 5, y))
    shown, target, counts = poison.aim(x[0], y[0], SCOPE)
    assert torch.equal(shown, x[0])
    assert torch.equal(counts, y[0] == 3)
    assert bool((target == 5).all())
    with pytest.raises(InputError, match="needs two classes"):
        TargetedFlip(source=1, target=1)
    with pytest.raises(InputError, match=r"TargetedFlip\(source=12\) needs a class from 0 to 9"):
        TargetedFlip(source=12).change(x, y, examples, clients, SCOPE)


def test_a_targeted_flip_succeeds_on_its_class_and_leaves_the_others():
    base = {"partition": Iid(), "training": Training(epochs=3), "num_clients": 5, "rounds": 3, "device": "cpu"}
    poison = TargetedFlip(source=0, target=6)
    *_, last = Simulation(make_setting(**base, data_poison=poison, fraction=0.8)).run()
    assert last.attack_success > 0.5
    assert last.source_accuracy < 0.5  # what is taken for the target is not taken for the source
    assert last.accuracy > 0.7  # nine of ten classes are taught correctly
    plain = Simulation(make_setting(**base))
    *_, honest = plain.run()
    assert np.isnan(honest.source_accuracy)
    model = plain.model
    aimed = World(make_setting(**base, data_poison=poison, fraction=0.8)).evaluator.evaluate(model, {})
    data = Digits().load()
    module = plain.world.module
    module.load_state_dict(plain.world.layout.unflatten(model))
    with torch.no_grad():
        zeros = module(torch.from_numpy(data.x_test[data.y_test == 0])).argmax(1).numpy()
    assert aimed.source_accuracy == pytest.approx((zeros == 0).mean())
    assert aimed.attack_success == pytest.approx((zeros == 6).mean())


@pytest.mark.parametrize("shape", [(1, 6, 6), (12, 5), (30,)], ids=["images", "text", "table"])
def test_a_blended_pattern_is_the_same_on_every_example_and_in_the_test(shape):
    x, y, examples, clients = batch(shape=shape)
    poison = BlendedBackdoor(share=1.0, alpha=0.25)
    marked = poison.change(x, y, examples, clients, SCOPE)[0]
    pattern = (marked - 0.75 * x) / 0.25
    torch.testing.assert_close(pattern, pattern[:1, :1].expand_as(pattern), atol=1e-4, rtol=0)
    assert float(pattern.min()) + 1e-4 >= 0
    assert float(pattern.max()) <= 2.5 + 1e-4
    torch.testing.assert_close(poison.aim(x[0], y[0], SCOPE)[0], marked[0])


def test_every_poison_is_registered_with_a_summary():
    for name in DATA_POISONS:
        assert DATA_POISONS.describe(name).summary
        DATA_POISONS.make(name)
