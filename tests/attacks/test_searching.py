from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import Aggregator, Median, TrimmedMean
from flanders.attacks import AgrTailored, Attack, Ipm, Lie, OptimalIpm, OptimalLie, View
from flanders.filters import KrumFilter
from flanders.simulation import Simulation
from peers import byzfl
from settings import make_setting

B = 3


def view_against(rule: Aggregator, seed: int, d: int = 20) -> View:
    benign = np.random.default_rng(seed).normal(size=(9, d)) + 0.5
    return View(
        np.zeros((B, d)),
        np.zeros(d),
        9 + B,
        benign=benign,
        respond=lambda rows: rule(np.concatenate([benign, rows])),
    )


def harm(attack: Attack, view: View) -> float:
    assert view.respond is not None
    return float(np.linalg.norm(view.respond(attack(view)) - view.benign.mean(axis=0)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["TrMean", "Median", "GeometricMedian"])
def test_optimal_ipm_finds_the_strength_that_byzfl_finds(seed: int, rule: str) -> None:
    rules = byzfl("aggregators.aggregators")
    theirs = getattr(rules, rule)(**({"f": B} if rule == "TrMean" else {}))
    nnm = byzfl("aggregators.preaggregators").NNM(f=B)
    view = view_against(Median(), seed)
    attack = byzfl("attacks.attacks").Optimal_InnerProductManipulation(theirs, pre_agg_list=[nnm], f=B)
    expected = attack(view.benign)
    known = View(
        view.own,
        view.global_model,
        view.num_clients,
        benign=view.benign,
        respond=lambda rows: theirs(nnm(np.concatenate([view.benign, rows]))),
    )
    np.testing.assert_allclose(OptimalIpm()(known)[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_optimal_lie_does_as_much_harm_as_byzfl_with_its_sign_turned(seed: int) -> None:
    """ByzFL adds, so it attacks the mirror image. Its deviations have n - 1, so its steps are a little longer."""
    rule = byzfl("aggregators.aggregators").TrMean(f=B)
    view = view_against(TrimmedMean(trim=B), seed)
    attack = byzfl("attacks.attacks").Optimal_ALittleIsEnough(rule, pre_agg_list=[], f=B)
    theirs = -attack(-view.benign)
    found = np.linalg.norm(rule(np.concatenate([view.benign, [theirs] * B])) - view.benign.mean(axis=0))
    assert harm(OptimalLie(), view) == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(trim=B)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_no_fixed_strength_does_more_harm_to_rules_whose_harm_has_one_peak(rule: Aggregator, seed: int) -> None:
    view = view_against(rule, seed)
    for searched, fixed in ((OptimalLie(), lambda t: Lie(z=t)), (OptimalIpm(), lambda t: Ipm(epsilon=t))):
        most = max(harm(fixed(t), view) for t in np.geomspace(0.1, 100, 40))
        assert harm(searched, view) > 0.97 * most
    assert harm(AgrTailored(target="server"), view) == pytest.approx(harm(OptimalLie(), view))


def test_without_knowledge_of_the_server_the_median_is_attacked() -> None:
    known = view_against(Median(), 0)
    unknown = View(known.own, known.global_model, known.num_clients, benign=known.benign)
    np.testing.assert_allclose(OptimalIpm()(unknown), OptimalIpm()(known), atol=1e-12)


def test_the_simulated_server_is_the_real_one() -> None:
    """What the attacker foresees for the rows that it sends is the model of the next round."""
    foreseen = []

    class Prophet(OptimalIpm):
        def craft(self, view, rng):
            rows = super().craft(view, rng)
            foreseen.append(view.respond(rows).clone())
            return rows

    fields = {"num_clients": 10, "rounds": 2, "fraction": 0.2, "filter": KrumFilter(num_malicious=2)}
    simulation = Simulation(make_setting(**fields, attack=Prophet(), aggregator=TrimmedMean(trim=2)))
    for _ in range(2):
        simulation.step()
        assert np.allclose(foreseen[-1], simulation.model, atol=1e-6)
