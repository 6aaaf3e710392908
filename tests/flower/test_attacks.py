from __future__ import annotations

import numpy as np
import pytest

from flanders import Flanders
from flanders.attacks import Gauss, Mar, SignFlip, View
from flanders.catalog import ATTACKS
from flanders.checks import InputError
from flanders.flower import FilteredStrategy
from flanders.flower.attacks import poisoned
from flower.federation import Client, LocalGrid, app, model, strategies
from peers import flower

clientapp = flower("clientapp")


def works_alone(attack):
    try:
        poisoned(attack)
    except InputError:
        return False
    return True


ALONE = [name for name in ATTACKS if works_alone(ATTACKS.make(name))]


class Device:
    """A node that runs a ClientApp, with the state that Flower keeps for it."""

    def __init__(self, node_id, mods, partition=0):
        self.context = app.Context(1, node_id, {"partition-id": partition}, app.RecordDict(), {})
        self.app, self.client = clientapp.ClientApp(mods=mods), Client(node_id)
        self.app.train()(lambda message, context: self.client(message))
        self.app.evaluate()(lambda message, context: self.client(message))

    def __call__(self, message):
        return self.app(message, self.context)


def ask(device, arrays, number=1, kind="train"):
    grid = LocalGrid({7: device})
    config = app.ConfigRecord({"server-round": number})
    content = app.RecordDict({"arrays": arrays, "config": config})
    (reply,) = grid.send_and_receive([app.Message(content, dst_node_id=7, message_type=kind)])
    return reply.content


def vector(arrays):
    return np.concatenate([a.numpy().ravel() for a in arrays.values()])


def batch_norm_model():
    start = model((6, 7), (7,), (7,), names=["w", "bn.weight", "bn.running_mean"])
    start["bn.num_batches_tracked"] = app.Array(np.asarray(3))
    return start


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_becomes_a_mod_or_says_where_it_runs_instead(name) -> None:
    if name not in ALONE:
        with pytest.raises(InputError, match=f"The attack '{name}' needs the models of other clients.*simulator"):
            poisoned(name)
        return
    start = batch_norm_model()
    honest, bad = Device(7, []), Device(7, [poisoned(name, seed=1)])
    for number in (1, 2, 3):
        start["w"] = app.Array((start["w"].numpy() + 0.01 * np.arange(42).reshape(6, 7)).astype(np.float32))
        expected, found = ask(honest, start, number), ask(bad, start, number)
        assert list(found["arrays"]) == list(expected["arrays"])
        assert found["metrics"] == expected["metrics"]
        for key in ("bn.running_mean", "bn.num_batches_tracked"):
            assert found["arrays"][key] == expected["arrays"][key]
        assert found["arrays"]["w"].dtype == "float32"
    assert not np.array_equal(found["arrays"]["w"].numpy(), expected["arrays"]["w"].numpy())


def test_the_attacks_that_work_alone_are_found_by_trying_them() -> None:
    assert {"gauss", "sign-flip", "ipm", "static", "budget"} <= set(ALONE)
    assert not {"lie", "agr-min-max", "agr-min-sum", "agr-tailored", "mimic", "mar", "blind-spot"} & set(ALONE)
    assert works_alone(Mar(omniscient=False))  # follows its own clients, and guesses where the server looks


def test_a_mod_sends_what_the_attack_crafts() -> None:
    start = model((6, 7), (7,))
    own = vector(ask(Device(7, []), start)["arrays"])
    sent = vector(ask(Device(7, [poisoned(SignFlip(scale=2.0))]), start)["arrays"])
    g = vector(start)
    np.testing.assert_array_equal(sent, SignFlip(scale=2.0)(View(own[None, :], g, 10))[0])


def test_float64_models_stay_float64() -> None:
    sent = ask(Device(7, [poisoned("sign-flip")]), model((6, 7), dtype="float64"))
    assert sent["arrays"]["layer0.weight"].dtype == "float64"


def test_who_is_malicious_and_from_when_can_be_chosen() -> None:
    mod = poisoned("sign-flip", when=lambda context: context.node_config["partition-id"] < 2, start=3)
    start = model((6, 7), (7,))
    for partition, number, attacks in ((0, 2, False), (0, 3, True), (1, 3, True), (2, 3, False)):
        honest = ask(Device(7, [], partition), start, number)["arrays"]
        sent = ask(Device(7, [mod], partition), start, number)["arrays"]
        assert np.array_equal(vector(sent), vector(honest)) != attacks


def test_an_attack_remembers_in_the_nodes_state_not_in_the_process() -> None:
    """A SuperNode starts a new process for each message; all it carries over is the context's state."""
    start = model((6, 7), (7,))
    device = Device(7, [poisoned("static")])
    first = vector(ask(device, start, 1)["arrays"])
    fresh = Device(7, [poisoned("static")])
    fresh.client = device.client
    fresh.context.state = device.context.state
    np.testing.assert_array_equal(vector(ask(fresh, start, 2)["arrays"]), first)
    assert not np.array_equal(vector(ask(Device(8, [poisoned("static")]), start, 2)["arrays"]), first)


def test_evaluation_and_errors_pass_through() -> None:
    start = model((6, 7))
    assert ask(Device(7, [poisoned("gauss")]), start, kind="evaluate")["metrics"]["eval_acc"] == 0.75
    device = Device(7, [poisoned("gauss")])
    device.client = lambda message: app.Message(app.Error(0, "broken"), reply_to=message)
    grid = LocalGrid({7: device})
    content = app.RecordDict({"arrays": start, "config": app.ConfigRecord({"server-round": 1})})
    (reply,) = grid.send_and_receive([app.Message(content, dst_node_id=7, message_type="train")])
    assert reply.error.reason == "broken"


def test_the_same_seed_gives_the_same_bytes_and_other_nodes_give_others() -> None:
    start = model((6, 7))
    sent = [vector(ask(Device(7, [poisoned("gauss", seed=4)]), start)["arrays"]) for _ in range(2)]
    np.testing.assert_array_equal(*sent)
    own = vector(ask(Device(8, []), start)["arrays"])
    other = vector(ask(Device(8, [poisoned("gauss", seed=4)]), start)["arrays"])
    assert not np.allclose(other - own, sent[0] - vector(ask(Device(7, []), start)["arrays"]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("gaus",), {}, "Did you mean 'gauss'"),
        (("gauss",), {"scale": 1}, "'gauss' has no parameter 'scale'"),
        ((Gauss(),), {"sigma": 1}, "`attack` must be the name of an attack, with its parameters, or an Attack"),
        ((7,), {}, "`attack` must be the name"),
        (("gauss",), {"start": 0}, "The `start` parameter of poisoned"),
    ],
)
def test_what_cannot_attack_is_refused(arguments, options, message) -> None:
    with pytest.raises(InputError, match=message):
        poisoned(*arguments, **options)


def test_poisoned_nodes_are_dropped_and_the_others_are_not() -> None:
    mods = [poisoned("gauss", sigma=1.0, seed=0, when=lambda context: context.node_config["partition-id"] < 2)]
    grid = LocalGrid({i: Device(i, mods, partition=i) for i in range(8)})
    strategy = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.75), fallback=strategies.FedMedian())
    result = strategy.start(grid, model((20, 30)), num_rounds=5)
    for number in range(2, 6):
        assert sorted(result.train_metrics_clientapp[number]["flanders-unused-nodes"]) == [0, 1]
