"""The studies that vary one thing: what their specs ask for."""

from __future__ import annotations

import pytest

from flanders import ATTACKS, InputError
from flanders.studies.grid_studies import STUDIES, find
from flanders.studies.grids import CONTROLS, runs_of


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_varies_what_it_says_and_keeps_the_controls_beside_it(name):
    study = STUDIES[name]
    runs = runs_of(study)
    filters = {run.canonical["filter"]["name"] for run in runs}
    assert set(CONTROLS) - {"keep-all"} < filters
    varied = [run for run in runs if run.canonical["filter"]["name"] not in CONTROLS]
    assert len({study.point(run.canonical) for run in varied}) >= 4
    for run in varied:
        if "keep" in run.canonical["filter"] and name != "fldetector":
            b = round(run.setting.threat.fraction * 30)
            assert run.setting.filter.keep == 30 - b


def test_studies_share_their_controls_so_that_these_are_run_once():
    window, order = ({run.id for run in runs_of(STUDIES[name])} for name in ("window", "order"))
    assert len(window & order) >= 3 * 8


def test_seeds_rounds_and_attacks_can_be_chosen():
    runs = runs_of(STUDIES["refit"], seeds=2, attacks=["ipm"], overrides=["federation.rounds=4"])
    assert {run.setting.federation.seed for run in runs} == {0, 1}
    assert {run.setting.threat.attack for run in runs} == {ATTACKS.make("ipm")}
    assert {run.setting.federation.rounds for run in runs} == {4}
    backdoors = runs_of(STUDIES["fldetector"], attacks=["gauss"])
    assert all(run.setting.threat.data_poison is None for run in backdoors)


def test_a_real_dataset_brings_the_papers_model_clients_and_rounds():
    (run, *_) = runs_of(STUDIES["window"], dataset="fashion-mnist")
    assert run.canonical["data"]["dataset"]["name"] == "fashion-mnist"
    assert run.canonical["model"]["name"] == "mlp4"
    assert run.setting.federation.num_clients == 100
    (run, *_) = runs_of(STUDIES["fldetector"], dataset="mnist")
    assert run.setting.training.optimizer == "sgd"


def test_what_does_not_exist_is_an_error_with_a_guess():
    with pytest.raises(InputError, match="Did you mean 'window'"):
        find("windw")
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        runs_of(STUDIES["window"], dataset="mnits")
    with pytest.raises(InputError, match=r"`seeds` parameter of study"):
        runs_of(STUDIES["window"], seeds=0)
    with pytest.raises(InputError, match="lei"):
        runs_of(STUDIES["window"], attacks=["lei"])
