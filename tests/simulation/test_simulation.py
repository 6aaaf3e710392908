from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from flanders import Fingerprint
from flanders.aggregators import Aggregator, Bucketing, FedAvg, Median
from flanders.attacks import Attack, BlindSpot, Gauss, Mar, SignFlip, Static
from flanders.catalog import ATTACKS
from flanders.checks import InputError
from flanders.data import Dirichlet, Iid, Synthetic, from_arrays
from flanders.filters import DistanceToGlobal, Flanders, FLDetector, KeepAll, Oracle, Persistence, Sample
from flanders.models import Logistic, Mlp4, ModelSpec
from flanders.published.flanders import FlandersReference
from flanders.record import Fate
from flanders.simulation import Federation, Simulation, Training, summary
from flanders.simulation.simulation import averaged
from flanders.state import load_state, save_state
from settings import changed, make_setting

SMALL = Synthetic(num_classes=4, num_features=6, num_samples=240, num_test=80)


def setting(**changes):
    base = {
        "dataset": SMALL,
        "partition": Dirichlet(alpha=1.0),
        "model": Logistic(),
        "training": Training("adam", 0.01, batch_size=8),
        "num_clients": 10,
        "rounds": 4,
        "device": "cpu",
    }
    return make_setting(**{**base, **changes})


def attacked(attack, **changes):
    return setting(**{"attack": attack, "fraction": 0.3, **changes})


@dataclass(frozen=True)
class Spy(Attack):
    """Writes down what it is shown, and sends honest models."""

    seen: list[Any] = dataclasses.field(default_factory=list)
    remembered: list[Any] = dataclasses.field(default_factory=list)

    def craft(self, view, rng):
        self.seen.append(view)
        return view.own + 0

    def remember(self, view, sent):
        self.remembered.append(view)
        return (view.memory or 0) + 1


@dataclass(frozen=True)
class Boost(Attack):
    """Sends what it is told to."""

    send: Any

    def craft(self, view, rng):
        return self.send(view)


@pytest.mark.parametrize(
    ("send", "found"),
    [
        (lambda view: view.own[:1], "shape (1, 28), expected (3, 28)"),
        (lambda view: view.own[0], "shape (28,), expected (3, 28)"),
        (lambda view: view.own.numpy(), "numpy.ndarray, expected a torch.Tensor of shape (3, 28)"),
        (lambda view: None, "NoneType, expected a torch.Tensor of shape (3, 28)"),
    ],
)
def test_an_attack_that_sends_something_else_than_a_row_a_client_is_named(send, found):
    message = f"Boost.craft returned {found}: a row for each of the attacker's clients."
    with pytest.raises(InputError, match=re.escape(message)):
        Simulation(attacked(Boost(send))).step()


def test_two_linear_clients_are_averaged_as_one_works_out_by_hand():
    """One example a client, class 0 with x = 2 and class 1 with x = 4, model w x from a known start."""

    @dataclass(frozen=True)
    class Line(ModelSpec):
        def make(self, input_shape, num_classes):
            line = torch.nn.Linear(1, 2, bias=False)
            torch.nn.init.zeros_(line.weight)
            return line

    data = from_arrays(np.array([[2.0], [4.0]]), [0, 1], np.array([[1.0], [1.0]]), [0, 1])
    simulation = Simulation(
        setting(partition=Iid(), model=Line(), training=Training("sgd", 0.1), num_clients=2, rounds=1), data
    )
    (only,) = simulation.run()
    # one step each: (0.1, -0.1) and (-0.2, 0.2), see training/test_trainer.py; the average is (-0.05, 0.05)
    torch.testing.assert_close(simulation.model, torch.tensor([-0.05, 0.05]))
    assert only.accuracy == 0.5
    expected = np.mean([math.log(1 + math.exp(0.1)), math.log(1 + math.exp(-0.1))])
    assert only.loss == pytest.approx(expected)
    assert math.isnan(only.attack_success)
    assert set(only.seconds) == {"train", "attack", "filter", "aggregate", "evaluate"}


def test_clients_learn_when_nobody_attacks():
    records = list(Simulation(setting(rounds=15)).run())
    assert records[-1].accuracy > 0.7
    assert records[-1].loss < records[0].loss
    assert [r.number for r in records] == list(range(1, 16))
    assert not any(r.malicious.any() for r in records)


def test_the_attacker_draws_its_share_of_all_clients_afresh_each_round():
    spy = Spy()
    records = list(Simulation(attacked(spy, fraction=0.25, rounds=8)).run())
    drawn = [tuple(np.flatnonzero(r.malicious)) for r in records]
    assert {len(d) for d in drawn} == {3}  # ceil(2.5)
    assert len(set(drawn)) > 1
    fixed = list(Simulation(attacked(spy, rotating=False)).run())
    assert len({tuple(np.flatnonzero(r.malicious)) for r in fixed}) == 1


def test_sybils_have_new_ids_in_every_poisoned_round_and_nothing_else_changes():
    spy, plain_spy = Spy(), Spy()
    given = {"rotating": False, "clients_per_round": 8, "start": 2, "rounds": 6}
    sybils = list(Simulation(attacked(spy, sybils=True, **given)).run())
    plain = list(Simulation(attacked(plain_spy, **given)).run())
    new = [c for r in sybils for c, bad in zip(r.ids, r.malicious, strict=True) if bad]
    assert len(new) == sum(int(r.malicious.sum()) for r in plain) > 6
    assert len(set(new)) == len(new)
    assert min(new) >= 10
    for mine, theirs in zip(sybils, plain, strict=True):
        np.testing.assert_array_equal(mine.malicious, theirs.malicious)
        assert tuple(c % 10 for c in mine.ids) == theirs.ids
        assert all(c < 10 for c, bad in zip(mine.ids, mine.malicious, strict=True) if not bad)
        assert (mine.accuracy, mine.loss) == (theirs.accuracy, theirs.loss)
    assert [v.clients for v in spy.remembered] == [v.clients for v in plain_spy.remembered]


def test_a_filter_has_no_history_of_sybils():
    given = {"filter": Persistence(keep=1.0), "rotating": False, "rounds": 3}
    *_, known = Simulation(attacked(Static(), **given)).run()
    *_, unknown = Simulation(attacked(Static(), sybils=True, **given)).run()
    assert known.scores[known.malicious].max() < known.scores[~known.malicious].min()  # always the same model
    assert unknown.scores[unknown.malicious].min() > unknown.scores[~unknown.malicious].max()


def test_the_oracle_knows_sybils_by_their_new_ids():
    for sybils in (False, True):
        for record in Simulation(attacked(SignFlip(), filter=Oracle(), sybils=sybils, start=2)).run():
            np.testing.assert_array_equal(record.kept, ~record.malicious)


def test_only_selected_clients_of_the_attacker_poison():
    records = list(Simulation(attacked(SignFlip(), clients_per_round=4, rounds=30)).run())
    assert all(len(r.clients) == 4 and list(r.ids) == sorted(set(r.ids)) for r in records)
    counts = [int(r.malicious.sum()) for r in records]
    assert min(counts) == 0
    assert max(counts) <= 3
    assert 0.6 < np.mean(counts) < 1.8  # 0.3 * 4 on average
    assert Federation(num_clients=10, clients_per_round=0.25).selected == 3


def test_an_omniscient_attacker_sees_every_model_sorted_by_client():
    spy = Spy()
    simulation = Simulation(attacked(spy, rounds=2, filter=Flanders(keep=0.7, look=Sample(5))))
    records = list(simulation.run())
    for view, record in zip(spy.seen, records, strict=True):
        ids = np.array(record.ids)
        assert view.clients == tuple(ids[record.malicious])
        assert view.benign_clients == tuple(ids[~record.malicious])
        assert view.benign.shape[0] == 7
        assert view.num_clients == 10
        assert len(view.server_columns) == 5
        assert view.last_layer == slice(0, 28)
    np.testing.assert_array_equal(spy.seen[0].server_columns, spy.seen[1].server_columns)


def test_an_attacker_that_is_not_omniscient_sees_only_its_own():
    spy = Spy()
    list(Simulation(attacked(spy, rounds=1, omniscient=False, filter=Flanders(keep=0.7, look=Sample(5)))).run())
    (view,) = spy.seen
    assert view.benign is None
    assert view.benign_clients == ()
    assert view.server_columns is None
    assert view.own.shape == (3, 28)


def test_a_filter_that_looks_at_everything_shows_all_columns():
    spy = Spy()
    list(Simulation(attacked(spy, rounds=1, filter=KeepAll())).run())
    assert len(spy.seen[0].server_columns) == 28


def test_the_attacker_watches_every_round_and_poisons_from_its_start_on():
    spy = Spy()
    records = list(Simulation(attacked(spy, start=3)).run())
    assert [bool(r.malicious.any()) for r in records] == [False, False, True, True]
    assert len(spy.seen) == 2
    assert [view.memory for view in spy.remembered] == [None, 1, 2, 3]


def test_neither_filter_nor_rule_is_told_who_is_malicious():
    seen = []

    @dataclass(frozen=True)
    class Watching(DistanceToGlobal):
        def score(self, state, round_):
            seen.append(round_)
            return super().score(state, round_)

    list(Simulation(attacked(SignFlip(), filter=Watching(keep=0.7), rounds=1)).run())
    (round_,) = seen
    known = {"updates", "clients", "weights", "global_model", "root", "layers", "evaluate", "outputs"}
    assert {f.name for f in dataclasses.fields(round_)} == known
    assert round_.clients == tuple(range(10))
    assert round_.root is None


def test_what_is_sent_is_what_the_attack_crafted_on_top_of_honest_training():
    honest, flipped = Simulation(setting(rounds=1)), Simulation(attacked(SignFlip(), rounds=1))
    updates = []
    for simulation in (honest, flipped):
        simulation.defense.filter = Recording(updates)
    (record,) = list(flipped.run())
    list(honest.run())
    sent, expected = updates
    bad = torch.from_numpy(record.malicious)
    assert torch.equal(sent[~bad], expected[~bad])
    g = Simulation(flipped.setting).model
    torch.testing.assert_close(sent[bad], 2 * g - expected[bad])


@dataclass(frozen=True)
class Recording(KeepAll):
    into: list[Any]

    def score(self, state, round_):
        self.into.append(round_.updates.clone())
        return super().score(state, round_)


def test_the_filter_is_told_the_names_of_the_layers():
    seen = []

    class Watching(KeepAll):
        def score(self, state, round_):
            seen.append(dict(round_.layers))
            return super().score(state, round_)

    Simulation(setting(filter=Watching(), rounds=1)).step()
    assert [list(layers.values()) for layers in seen] == [[24, 4]]
    assert all(name.endswith(("weight", "bias")) for name in seen[0])


def test_in_the_first_round_the_fallback_aggregates():
    robust = Simulation(attacked(Gauss(sigma=1.0), filter=Persistence(keep=0.7), fallback=Median(), rounds=1))
    plain = Simulation(attacked(Gauss(sigma=1.0), filter=Persistence(keep=0.7), rounds=1))
    (first,), (second,) = robust.run(), plain.run()
    assert first.note == "no scores yet: all usable models were aggregated"
    assert np.isnan(first.scores).all()
    assert first.kept.all()
    assert first.loss < second.loss


def test_scores_kept_and_threshold_belong_to_their_clients():
    simulation = Simulation(attacked(Gauss(), filter=DistanceToGlobal(keep=0.7), rounds=2))
    for record in simulation.run():
        np.testing.assert_array_equal(record.kept, ~record.malicious)
        assert record.scores[record.malicious].min() > record.scores[~record.malicious].max()
        assert record.threshold == record.scores[record.kept].max()
        assert np.isnan(record.probabilities).all()


def test_clients_that_send_no_numbers_are_unusable_and_the_run_goes_on():
    @dataclass(frozen=True)
    class Nan(Attack):
        def craft(self, view, rng):
            return view.own * math.nan

    record, *_ = Simulation(attacked(Nan(), filter=DistanceToGlobal(keep=0.5), rounds=1)).run()
    refused = {client.client for client in record.having(Fate.REFUSED)}
    assert refused == set(np.array(record.ids)[record.malicious])
    assert np.isnan(record.scores[record.malicious]).all()
    assert not record.kept[record.malicious].any()
    assert math.isfinite(record.loss)


def test_an_aggregate_that_overflows_leaves_the_global_model():
    @dataclass(frozen=True)
    class Huge(Attack):
        def craft(self, view, rng):
            return view.own * 0 + 3e38

    @dataclass(frozen=True)
    class Sum(FedAvg):
        def aggregate(self, round_, rng):
            return round_.updates.sum(0)

    simulation = Simulation(attacked(Huge(), aggregator=Sum(), rounds=2))
    before = simulation.model
    records = list(simulation.run())
    assert torch.equal(simulation.model, before)
    assert "not finite" in records[0].note


def test_buffers_are_averaged_by_weight_over_kept_clients_and_whole_numbers_rounded():
    before = {"mean": torch.tensor([1.0, 0.1]), "seen": torch.tensor(5)}
    after = {
        "mean": torch.tensor([[2.0, 0.1], [4.0, 0.1], [9.0, 9.0], [math.nan, 0.1]]),
        "seen": torch.tensor([6, 9, 100, 7]),
    }
    new = averaged(before, after, np.array([0, 1, 3]), np.array([1.0, 3.0, 1.0, 4.0]))
    assert torch.equal(new["mean"], torch.tensor([3.5, 0.1]))
    assert int(new["seen"]) == 8  # (6 + 3 * 9 + 4 * 7) / 8 = 7.6
    assert averaged(before, after, np.array([], dtype=np.int64), np.ones(4)) == before


@dataclass(frozen=True)
class Told(Aggregator):
    """Writes down how many malicious clients it is told of, and averages."""

    num_malicious: int = 99
    told: list[Any] = dataclasses.field(default_factory=list)

    def aggregate(self, round_, rng):
        self.told.append((self.num_malicious, round_.updates.shape[0]))
        return FedAvg().aggregate(round_, rng)


def test_only_an_informed_rule_is_told_how_many_malicious_clients_the_filter_kept():
    for informed in (False, True):
        rule = Told()
        chosen = attacked(SignFlip(), filter=DistanceToGlobal(keep=6), aggregator=rule, informed=informed, start=2)
        records = list(Simulation(chosen).run())
        truth = [int((r.malicious & r.kept).sum()) for r in records]
        assert truth[0] == 0
        assert max(truth) > 0
        assert rule.told == [(left if informed else 99, 6) for left in truth]


def test_a_rule_that_cannot_be_told_is_refused():
    with pytest.raises(InputError, match="num_malicious"):
        setting(informed=True)


@pytest.mark.parametrize("other", [1, 3])
def test_another_chunk_size_gives_the_same_decisions(other):
    chosen = attacked(SignFlip(), model=Mlp4(), filter=Flanders(keep=0.7))
    one, two = Simulation(chosen), Simulation(changed(chosen, chunk=other))
    for a, b in zip(one.run(), two.run(), strict=True):
        np.testing.assert_array_equal(a.kept, b.kept)
        np.testing.assert_allclose(a.scores, b.scores, rtol=1e-3)
    torch.testing.assert_close(one.model, two.model, atol=3e-5, rtol=0)


RESUMED = {
    "flanders, gauss": (Flanders(keep=0.7), Gauss()),
    "flanders sampled, mar": (Flanders(keep=0.7, look=Sample(10)), Mar()),
    "flanders reference, opt-reference": (
        FlandersReference(keep=0.7, sample=10, iterations=5),
        ATTACKS.make("opt-reference"),
    ),
    "flanders redrawn, blind spot": (Flanders(keep=0.7, look=Sample(10, redraw=True)), BlindSpot()),
    "flanders by threshold, budget": (Flanders(threshold=0.9, window=3), ATTACKS.make("budget")),
    "fldetector, static": (FLDetector(), Static()),
    "persistence, agr": (Persistence(keep=0.7), ATTACKS.make("agr-min-max")),
    "keep all, mimic": (KeepAll(), ATTACKS.make("mimic")),
    "keep all, slow drift": (KeepAll(), ATTACKS.make("slow-drift")),
    "keep all, on and off": (KeepAll(), ATTACKS.make("on-off", on=1, off=1, base=ATTACKS.make("budget"))),
    "flanders by itself, sign flip": (Fingerprint(), SignFlip()),
    "keep all, gauss, random buckets": (KeepAll(), Gauss(), Bucketing(2) | Median()),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_saved_run_continues_bit_for_bit(name, tmp_path):
    filter_, attack, *rule = RESUMED[name]
    defence = dict(zip(("filter", "aggregator"), (filter_, *rule), strict=False))
    chosen = attacked(attack, **defence, model=Mlp4(), clients_per_round=8, start=2, rounds=6)
    whole = Simulation(chosen)
    expected = list(whole.run())
    first = Simulation(chosen)
    rounds = first.run()
    got = [next(rounds) for _ in range(3)]
    save_state(tmp_path / "state.npz", first.state_dict())
    second = Simulation(chosen)
    second.load_state_dict(load_state(tmp_path / "state.npz", like=second.like))
    got += list(second.run())
    assert torch.equal(whole.model, second.model)
    for a, b in zip(expected, got, strict=True):
        assert (a.number, a.accuracy, a.loss, a.clients) == (b.number, b.accuracy, b.loss, b.clients)
        assert a.scores.tobytes() == b.scores.tobytes()
        np.testing.assert_array_equal(a.kept, b.kept)
        np.testing.assert_array_equal(a.malicious, b.malicious)


def test_a_run_with_batch_norm_continues_bit_for_bit(tmp_path):
    @dataclass(frozen=True)
    class Normed(ModelSpec):
        def make(self, input_shape, num_classes):
            nn = torch.nn
            return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))

    chosen = setting(model=Normed(), rounds=4)
    whole = Simulation(chosen)
    expected = list(whole.run())
    first, second = Simulation(chosen), Simulation(chosen)
    for _, record in zip(range(2), first.run(), strict=False):
        assert math.isfinite(record.loss)
    save_state(tmp_path / "state.npz", first.state_dict())
    second.load_state_dict(load_state(tmp_path / "state.npz", like=second.like))
    assert list(second.run())[-1].loss == expected[-1].loss
    assert set(second.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert all(torch.equal(whole.buffers[name], b) for name, b in second.buffers.items())
    assert int(whole.buffers["1.num_batches_tracked"]) > 4
    assert whole.model.shape == (6 * 8 + 8 + 16 + 8 * 4 + 4,)  # buffers are not part of what is scored


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not():
    chosen = attacked(Gauss(), filter=Flanders(keep=0.7))
    one, two, other = (Simulation(changed(chosen, seed=s)) for s in (1, 1, 2))
    for simulation in (one, two, other):
        list(simulation.run())
    assert torch.equal(one.model, two.model)
    assert not torch.equal(one.model, other.model)


def test_changing_the_defence_changes_neither_data_nor_attackers():
    seen = {}
    for name, filter_ in (("all", KeepAll()), ("flanders", Flanders(keep=0.7))):
        simulation = Simulation(attacked(Gauss(), filter=filter_, clients_per_round=6))
        records = list(simulation.run())
        seen[name] = (
            [r.ids for r in records],
            [r.malicious.tolist() for r in records],
            simulation.world.data.sizes,
        )
    assert seen["all"][:2] == seen["flanders"][:2]
    np.testing.assert_array_equal(seen["all"][2], seen["flanders"][2])


def test_flanders_saves_digits_from_a_malicious_majority():
    common = {"attack": Gauss(), "fraction": 0.8, "start": 3, "rounds": 5}
    training = Training(learning_rate=0.01, epochs=2)
    base = make_setting(partition=Iid(), num_clients=20, training=training, device="cpu", **common)
    alone = summary(list(Simulation(base).run()))
    guarded = summary(list(Simulation(dataclasses.replace(base, filter=Flanders(keep=0.2))).run()), first_round=3)
    assert guarded["precision"] == guarded["recall"] == 1.0
    assert guarded["auc"] == 1.0
    assert guarded["final_accuracy"] > 0.8 > 0.5 > alone["final_accuracy"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clients_per_round": 11}, "clients_per_round. .* from 1 to 10, .* Got 11"),
        ({"clients_per_round": 0.0}, "a fraction above 0 and up to 1. Got 0.0"),
        ({"fraction": 0.2}, "nothing for them to do"),
        ({"fraction": 1.2}, "`fraction` parameter of Threat"),
        ({"filter": Median()}, "`filter` parameter of Setting must be a Filter"),
        ({"attack": Gauss}, "`attack` parameter of Threat must be an Attack, or None"),
        ({"rounds": 0}, "rounds"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_a_setting_says_what_is_wrong_with_it(wrong, message):
    with pytest.raises(InputError, match=message):
        setting(**wrong)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(InputError, match="no device called 'gpu'"):
        Simulation(setting(device="gpu"))
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="finds no GPU"):
            Simulation(setting(device="cuda"))


def test_a_state_of_another_simulation_is_refused():
    with pytest.raises(InputError, match="does not fit"):
        Simulation(setting()).load_state_dict(Simulation(setting(model=Mlp4())).state_dict())
    with pytest.raises(InputError, match="format None"):
        Simulation(setting()).load_state_dict({})
