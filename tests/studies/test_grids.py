"""The studies that vary one thing: what their specs ask for."""

from __future__ import annotations

import pytest

from flanders import InputError, cli
from flanders.studies.grids import CONTROLS, PREDICTABILITY, STUDIES, find, layer_sizes, read_spec, runs_of


def test_the_command_line_offers_all_studies():
    assert set(cli.STUDIES) == {PREDICTABILITY.name, *STUDIES}
    assert all(find(name).name == name for name in cli.STUDIES)


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
            b = round(run.canonical["attack"]["fraction"] * 30)
            assert run.canonical["filter"]["keep"] == 30 - b


def test_studies_share_their_controls_so_that_these_are_run_once():
    window, order = ({run.id for run in runs_of(STUDIES[name])} for name in ("window", "order"))
    assert len(window & order) >= 3 * 8


def test_seeds_rounds_and_attacks_can_be_chosen():
    runs = runs_of(STUDIES["refit"], seeds=2, attacks=["ipm"], overrides=["federation.rounds=4"])
    assert {run.canonical["federation"]["seed"] for run in runs} == {0, 1}
    assert {run.canonical["attack"]["name"] for run in runs} == {"ipm"}
    assert {run.canonical["federation"]["rounds"] for run in runs} == {4}
    backdoors = runs_of(STUDIES["fldetector"], attacks=["gauss"])
    assert all(run.canonical["poison"] is None for run in backdoors)


def test_a_real_dataset_brings_the_papers_model_clients_and_rounds():
    (run, *_) = runs_of(STUDIES["window"], dataset="fashion-mnist")
    assert run.canonical["data"]["dataset"]["name"] == "fashion-mnist"
    assert run.canonical["model"]["name"] == "mlp4"
    assert run.canonical["federation"]["clients"] == 100
    (run, *_) = runs_of(STUDIES["fldetector"], dataset="mnist")
    assert run.canonical["training"]["optimizer"] == "sgd"


def test_layers_are_those_of_the_model():
    assert layer_sizes(read_spec("selection")) == [64 * 128 + 128, 128 * 10 + 10]
    assert layer_sizes({"data": {"dataset": "digits"}, "model": {"name": "logistic"}}) == [650]
    runs = runs_of(STUDIES["selection"], overrides=["model.hidden=16"])
    layers = {str(run.canonical["filter"].get("layers")) for run in runs}
    assert layers == {"None", str([64 * 16 + 16, 170])}


def test_what_does_not_exist_is_an_error_with_a_guess():
    with pytest.raises(InputError, match="Did you mean 'window'"):
        find("windw")
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        runs_of(STUDIES["window"], dataset="mnits")
    with pytest.raises(InputError, match=r"`seeds` parameter of study"):
        runs_of(STUDIES["window"], seeds=0)
    with pytest.raises(InputError, match="lei"):
        runs_of(STUDIES["window"], attacks=["lei"])
