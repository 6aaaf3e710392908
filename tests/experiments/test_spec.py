from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import flanders
from flanders import InputError
from flanders.experiments.experiment import Experiment
from flanders.experiments.filling import COUNT_OR_FRACTION
from flanders.experiments.spec import parse_spec, read_specs
from flanders.results.run import RunSpec
from flanders.simulation import Simulation


def parse(text, *overrides):
    return parse_spec(tomllib.loads(text), overrides, "mine.toml")


def one(text, *overrides):
    (run,) = parse(text, *overrides)
    return run


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("", "[federation]\nnum_clients = 100\nrounds = 50\nseed = 0"),
        ("[federation]\nclients_per_round = 0.5", "[federation]\nclients_per_round = 50"),
        ('filter = "kmeans"', '[filter]\nname = "kmeans"\nsuspicion = 0.5'),
        ('filter = {name = "flanders", keep = 2}', '[filter]\nkeep = 2\nname = {name = "flanders"}'),
        (
            "threat = {attack = {name = 'gauss', sigma = 5}, fraction = 0.2}",
            "threat = [{attack = [{name='gauss', sigma=5.0}], fraction=0.2}]",
        ),
        ("threat = {attack = 'lie', fraction = 0}", "threat = {attack = 'none'}"),
        ("threat = {attack = 'none', fraction = 0.8}", ""),
        ("[data]\npartition = 'dirichlet'\nalpha = 1", "[data.partition]\nname = 'dirichlet'\nalpha = 1.0"),
        ("[run]\ndevice = 'cpu'\nchunk = 7\ndata_dir = '/x'\ncheckpoint_every = 5\ntf32 = true", ""),
        (
            "aggregator = {name = 'krum', preaggregators = 'nnm'}",
            "aggregator = {name='krum', preaggregators=[['nnm']]}",
        ),
        ("[aggregator]\nname = 'krum'\npreaggregators = 'none'", "aggregator = 'krum'"),
        (
            "filter = {name = 'dnc', sample = 'none'}\n[federation]\nseed = [0]",
            "filter = {name='dnc', sample='none'}",
        ),
        ("filter = 'guard'", ""),
    ],
)
def test_two_spellings_of_a_run_have_one_id(left, right):
    assert one(left).canonical == one(right).canonical
    assert one(left).id == one(right).id


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("filter = {name = 'flanders', keep = 1}", "filter = {name = 'flanders', keep = 1.0}"),
        ("", "[federation]\nseed = 1"),
        ("threat = {attack='lie', fraction=0.2}", "threat = {attack='lie', fraction=0.2, start=2}"),
    ],
)
def test_what_decides_otherwise_has_another_id(left, right):
    assert one(left).id != one(right).id


def test_the_id_of_a_run_is_what_it_was_yesterday():
    run = RunSpec({"b": 1.0, "a": [1, None, "é"]})
    assert run.text == '{"a":[1,null,"é"],"b":1.0}'
    assert run.id == "f1c77cad9e089afe"


def test_the_canonical_form_describes_the_same_run():
    attack = "attack = {name = 'mar', omniscient = false}"
    run = one(
        f"threat = {{{attack}, fraction = 0.3, omniscient = false}}\nfallback = 'median'\nrun = {{chunk = 3}}"
    )
    read = Experiment.of(RunSpec(json.loads(run.spec.text), run.options))
    assert (read, read.id) == (run, run.id)
    setting = run.setting
    assert setting.threat.omniscient is False
    assert setting.threat.attack == flanders.ATTACKS.make("mar", omniscient=False)
    assert setting.fallback == flanders.Median()
    assert setting.threat.fraction == 0.3
    assert setting.run.chunk == 3


def test_b_and_m_minus_b_are_numbers_of_clients_of_the_round():
    text = """
    [federation]
    num_clients = 50
    clients_per_round = 25
    [threat]
    attack = "lie"
    fraction = 0.28
    [filter]
    name = "flanders"
    keep = "m-b"
    [aggregator]
    name = "multi-krum"
    num_malicious = "b"
    preaggregators = {name = "nnm", num_malicious = "b"}
    """
    setting = one(text).setting
    assert setting.filter == flanders.Flanders(keep=18)
    assert setting.aggregator == flanders.Nnm(7) | flanders.MultiKrum(num_malicious=7)
    without = one(text, "threat.attack=none").setting
    assert without.filter == flanders.Flanders(keep=25)


def test_a_chain_of_preaggregators_keeps_its_order():
    setting = one("aggregator = {name = 'median', preaggregators = [['bucketing', 'nnm']]}").setting
    assert setting.aggregator == flanders.Bucketing() | (flanders.Nnm() | flanders.Median())


def test_a_parameter_that_is_a_list_is_written_in_a_list():
    run = one("threat = {attack = {name = 'opt-reference', layer_sizes = [[784, 10]]}, fraction = 0.1}")
    assert run.setting.threat.attack.layer_sizes == (784, 10)


def test_poisoned_data_needs_no_attack_on_the_model():
    threat = one(
        "threat = {data_poison = {name = 'backdoor', target = 3}, fraction = 0.3, start = 4}"
    ).setting.threat
    assert threat.attack is None
    assert (threat.data_poison.target, threat.fraction, threat.start) == (3, 0.3, 4)


def test_a_grid_counts_the_attack_free_run_once():
    text = """
    [threat]
    attack = ["none", "lie", {name = "gauss", sigma = [1, 5]}]
    fraction = [0.2, 0.8]
    """
    runs = parse(text)
    assert len(runs) == 1 + 3 * 2
    assert len({run.id for run in runs}) == len(runs)


def test_runs_that_two_files_share_are_run_once(tmp_path):
    for name, seeds in (("a", "[0, 1]"), ("b", "[1, 2]")):
        (tmp_path / f"{name}.toml").write_text(f"[federation]\nseed = {seeds}")
    runs = read_specs([tmp_path / "a.toml", tmp_path / "b.toml"])
    assert [run.setting.federation.seed for run in runs] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[threats]\nattack = 'lie'", r"mine.toml: there is no table 'threats'. Did you mean 'threat'\?"),
        ("threat = {attack = 'lie2', fraction = 0.2}", r"mine.toml: threat.attack.name: There is no attack"),
        ("threat = {attack='lei', fraction=0.2}", r"Did you mean 'lie'\?"),
        ("threat.attack = {name='gauss', sgima=1}", r"mine.toml: threat.attack.sgima.*Did you mean 'sigma'\?"),
        ("threat.attack = {name='gauss', sigma='big'}", r"threat.attack.sigma must be a number. Got 'big'"),
        ("threat = {attack = 'lie'}", r"threat.fraction is needed"),
        ("threat = {attack='lie', fraction=20}", r"threat: The `fraction` parameter .* from 0 to 1. Got 20.0"),
        ("[federation]\nrounds = '3'", r"federation.rounds must be a whole number. Got '3'"),
        ("[federation]\nrounds = 2.5", r"federation.rounds must be a whole number. Got 2.5"),
        ("[federation]\nrounds = true", r"federation.rounds must be a whole number. Got True"),
        ("[federation]\nround = 2", r"federation.round: there is no such parameter. Did you mean 'rounds'\?"),
        ("[federation]\nclients_per_round = 200", r"federation: The `clients_per_round` .* from 1 to 100"),
        (
            "[federation]\nclients_per_round = 0.0",
            r"federation: The `clients_per_round` .* a fraction above 0 and up to 1. Got 0.0",
        ),
        ("[federation]\nclients_per_round = 1.5", r"federation: The `clients_per_round` .* Got 1.5"),
        (
            "federation = {rounds = 4}\nthreat = {attack = 'lie', fraction = 0.2, start = 5}",
            r"threat.start is 5, but federation.rounds is 4",
        ),
        (
            "federation = {rounds = 4}\nthreat = {data_poison = 'label-flip', fraction = 0.2, start = 5}",
            r"threat.start is 5, but federation.rounds is 4",
        ),
        (
            "federation = {num_clients = 10}\nthreat = {attack = 'lie', fraction = 1.0}\n"
            "filter = {name = 'flanders', keep = 'm-b'}",
            r"filter.keep: m-b is 0: all 10 clients of the round are malicious",
        ),
        ("federation = 3", r"federation must be a table"),
        ("[filter]\nname = [[1]]", r"filter.name must be the name of one filter"),
        ("[data]\ndataset = [[1]]", r"data.dataset"),
        ("[threat]\nattack = [[1]]\nfraction = 0.2", r"threat.attack"),
        ("[filter]\nkeep = 3", r"filter.name must be the name of one filter. Known: guard"),
        ("filter = 3", r"filter must be a table"),
        ("filter = {name = 'flanders', keep = 'm-c'}", r"filter.keep must be .*or one of 'b', 'm-b'. Got 'm-c'"),
        ("filter = {name = 'flanders', keep = 0}", r"filter: The `keep` parameter of Flanders must be"),
        ("filter = 'none'", r"filter.name may not be 'none'"),
        ("[filter]\nname = ['keep-all', 'flanders']\nkeep = 3", r"filter.keep: .* Write it beside the name"),
        ("filter = {name = {name = 'flanders', keep = 2}, keep = 3}", r"filter.keep is given twice"),
        ("[data]\npartition = 'iid'\nalpha = 3", r"data.alpha: neither 'digits' nor 'iid' has such a parameter"),
        ("[data]\nalpha = 3\npartition = {name = 'dirichlet', alpha = 3}", r"data.alpha is given twice"),
        ("[data]\ndataset = 'minst'", r"data.dataset.name: There is no dataset.*Did you mean 'mnist'\?"),
        ("[training]\nlearning_rate = nan", r"training.learning_rate is nan"),
        ("[training]\nlearning_rate = 2020-01-01", r"training.learning_rate must be a number"),
        ("aggregator = {name = 'none', preaggregators = 'nnm'}", r"aggregator: preaggregators need an aggregator"),
        ("aggregator = {name = 'krum', preaggregators = 'nmn'}", r"aggregator.preaggregators.name: .*'nnm'"),
        ("[run]\nchunk = [1, 2]", r"run.chunk cannot be a list"),
        ("[run]\nchunk = 0", r"run: The `chunk` parameter"),
        ("[run]\ndevise = 'cpu'", r"Did you mean 'device'\?"),
    ],
)
def test_a_wrong_spec_says_where_and_what(text, problem):
    with pytest.raises(InputError, match=problem) as caught:
        parse(text)
    assert str(caught.value).startswith("mine.toml")


def test_an_unknown_name_on_an_axis_is_no_matter_of_parameters():
    with pytest.raises(InputError, match="Did you mean 'gauss'") as caught:
        parse("[threat]\nattack = ['lie', 'gaus']\nfraction = 0.2")
    assert "A parameter that only some" not in str(caught.value)


def test_what_the_file_says_wrong_is_not_blamed_on_an_override():
    with pytest.raises(InputError, match=r"mine.toml: federation.rounds must be"):
        parse("[federation]\nrounds = 'x'", "federation.seed=3")


def test_every_parameter_that_is_a_count_or_a_fraction_is_known_as_one():
    source = "\n".join(path.read_text() for path in Path(flanders.__file__).parent.glob("[af]*/*.py"))
    asked = set(re.findall(r"resolve_count\(self\.(\w+)", source)) | set(
        re.findall(r"check_keep\(.*self\.(\w+)", source)
    )
    assert asked
    assert asked <= COUNT_OR_FRACTION


def test_an_aggregator_that_is_told_the_truth_is_another_run():
    chosen = {"name": "multi-krum", "num_malicious": 1}
    plain, told = (parse_spec({"aggregator": chosen, "informed": told})[0] for told in (False, True))
    assert plain.id == parse_spec({"aggregator": chosen})[0].id
    assert plain.id != told.id
    assert told.setting.informed is True
    assert plain.setting.informed is False


def test_sybils_are_another_run():
    threat = {"attack": "lie", "fraction": 0.2}
    plain, sybils = (parse_spec({"threat": {**threat, "sybils": sybils}})[0] for sybils in (False, True))
    rest = {"start": 1, "rotating": True, "omniscient": True, "sybils": False, "data_poison": None}
    assert plain.canonical["threat"] == {"attack": {"name": "lie", "z": None}, "fraction": 0.2, **rest}
    assert plain.id != sybils.id
    assert plain.setting.threat.sybils is False
    assert Experiment.of(RunSpec(json.loads(sybils.spec.text))).setting.threat.sybils is True


def test_attackers_can_be_the_same_from_the_first_round_on():
    text = "threat = {attack = {name = 'on-off', base = 'lie'}, fraction = 0.2, start = 1, rotating = false}"
    threat = one(text).setting.threat
    assert (threat.start, threat.rotating) == (1, False)
    assert threat.attack == flanders.ATTACKS.make("on-off", base=flanders.ATTACKS.make("lie"))


@pytest.mark.parametrize(
    "tree",
    [
        {"aggregator": "fedavg", "informed": True},
        {"aggregator": {"name": "krum", "preaggregators": "nnm"}, "informed": True},
        {"aggregator": "krum", "informed": "yes"},
        {"aggregator": {"name": "krum", "informed": True}},
        {"fallback": {"name": "krum", "informed": True}},
    ],
)
def test_only_the_aggregator_itself_can_be_told_the_truth(tree):
    with pytest.raises(InputError, match="informed"):
        parse_spec(tree)


PEERS = """
[federation]
num_clients = 6
rounds = 2
[server]
examples = 30
[threat]
data_poison = { name = "backdoor", boost = 3.0 }
fraction = 0.34
rotating = false
[filter]
name = "%s"
[aggregator]
name = "%s"
[run]
device = "cpu"
"""


@pytest.mark.parametrize(
    ("filter_", "aggregator"),
    [("keep-all", name) for name in ("flame", "foolsgold", "clipping-and-noise", "fltrust", "zeno++")]
    + [("skymask", "fedavg"), ("flame", "fedavg")],
)
def test_a_boosted_backdoor_by_a_third_from_the_first_round_runs_against_every_peer(filter_, aggregator):
    records = list(Simulation(one(PEERS % (filter_, aggregator)).setting).run())
    assert [int(record.malicious.sum()) for record in records] == [3, 3]
    assert np.isfinite([record.attack_success for record in records]).all()
