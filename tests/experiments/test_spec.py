from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import flanders
from flanders import InputError
from flanders.experiments.build import make_setting
from flanders.experiments.spec import parse_spec, read_specs
from flanders.experiments.values import COUNT_OR_FRACTION
from flanders.results.run import RunSpec

pytestmark = pytest.mark.usefixtures("fake")


def parse(text, *overrides):
    return parse_spec(tomllib.loads(text), overrides, "mine.toml")


def one(text, *overrides):
    (run,) = parse(text, *overrides)
    return run


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("", "[federation]\nclients = 100\nrounds = 50\nseed = 0"),
        ("[federation]\nper_round = 0.5", "[federation]\nper_round = 50"),
        ('filter = "kmeans"', '[filter]\nname = "kmeans"\nsuspicion = 0.5'),
        ('filter = {name = "flanders", keep = 2}', '[filter]\nkeep = 2\nname = {name = "flanders"}'),
        (
            "attack = {name = 'gauss', sigma = 5, fraction = 0.2}",
            "attack = [{name='gauss', sigma=5.0, fraction=0.2}]",
        ),
        ("attack = {name = 'lie', fraction = 0}", "attack = 'none'"),
        ("attack = {name = 'none', fraction = 0.8}", ""),
        ("[data]\npartition = 'dirichlet'\nalpha = 1", "[data.partition]\nname = 'dirichlet'\nalpha = 1.0"),
        ("[run]\ndevice = 'cpu'\nchunk = 7\ndata_dir = '/x'\ncheckpoint_every = 5", ""),
        (
            "aggregator = {name = 'krum', preaggregators = 'nnm'}",
            "aggregator = {name='krum', preaggregators=[['nnm']]}",
        ),
        ("[aggregator]\nname = 'krum'\npreaggregators = 'none'", "aggregator = 'krum'"),
        (
            "filter = {name = 'dnc', sample = 'none'}\n[federation]\nseed = [0]",
            "filter = {name='dnc', sample='none'}",
        ),
        ("filter = 'flanders'", "filter = {name = 'flanders', keep = 'auto'}"),
    ],
)
def test_two_spellings_of_a_run_have_one_id(left, right):
    assert one(left).text == one(right).text
    assert one(left).id == one(right).id


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("filter = {name = 'flanders', keep = 1}", "filter = {name = 'flanders', keep = 1.0}"),
        ("", "[federation]\nseed = 1"),
        ("attack = {name='lie', fraction=0.2}", "attack = {name='lie', fraction=0.2, start=2}"),
    ],
)
def test_what_decides_otherwise_has_another_id(left, right):
    assert one(left).id != one(right).id


def test_the_id_of_a_run_is_what_it_was_yesterday():
    run = RunSpec({"b": 1.0, "a": [1, None, "é"]})
    assert run.text == '{"a":[1,null,"é"],"b":1.0}'
    assert run.id == "f1c77cad9e089afe"


def test_the_canonical_form_describes_the_same_run():
    run = one("attack = {name = 'mar', fraction = 0.3, omniscient = false}\nfallback = 'median'")
    assert RunSpec(json.loads(run.text)).id == run.id
    setting = make_setting(run)
    assert setting == make_setting(RunSpec(json.loads(run.text), run.options))
    assert setting.omniscient is False
    assert setting.attack == flanders.ATTACKS.make("mar", omniscient=False)
    assert setting.fallback == flanders.Median()
    assert setting.malicious_fraction == 0.3


def test_b_and_m_minus_b_are_numbers_of_clients_of_the_round():
    text = """
    [federation]
    clients = 50
    per_round = 25
    [attack]
    name = "lie"
    fraction = 0.28
    [filter]
    name = "flanders"
    keep = "m-b"
    [aggregator]
    name = "multi-krum"
    num_malicious = "b"
    preaggregators = {name = "nnm", num_malicious = "b"}
    """
    setting = make_setting(one(text))
    assert setting.filter == flanders.Flanders(keep=18)
    assert setting.aggregator == flanders.Nnm(7) | flanders.MultiKrum(num_malicious=7)
    without = make_setting(one(text, "attack.name=none"))
    assert without.filter == flanders.Flanders(keep=25)


def test_a_chain_of_preaggregators_keeps_its_order():
    setting = make_setting(one("aggregator = {name = 'median', preaggregators = [['bucketing', 'nnm']]}"))
    assert setting.aggregator == flanders.Bucketing() | (flanders.Nnm() | flanders.Median())


def test_a_parameter_that_is_a_list_is_written_in_a_list():
    run = one("attack = {name = 'opt-reference', fraction = 0.1, layer_sizes = [[784, 10]]}")
    assert make_setting(run).attack.layer_sizes == (784, 10)


def test_poisoned_data_needs_no_attack_on_the_model():
    run = one("poison = {name = 'label-flip', target = 3}\nattack = {fraction = 0.3, start = 4}")
    setting = make_setting(run)
    assert setting.attack is None
    assert (setting.data_poison.target, setting.malicious_fraction, setting.attack_start) == (3, 0.3, 4)


def test_a_grid_counts_the_attack_free_run_once():
    text = """
    [attack]
    name = ["none", "lie", {name = "gauss", sigma = [1, 5]}]
    fraction = [0.2, 0.8]
    """
    runs = parse(text)
    assert len(runs) == 1 + 3 * 2
    assert len({run.id for run in runs}) == len(runs)


def test_runs_that_two_files_share_are_run_once(tmp_path):
    for name, seeds in (("a", "[0, 1]"), ("b", "[1, 2]")):
        (tmp_path / f"{name}.toml").write_text(f"[federation]\nseed = {seeds}")
    runs = read_specs([tmp_path / "a.toml", tmp_path / "b.toml"])
    assert [run.canonical["federation"]["seed"] for run in runs] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[atack]\nname = 'lie'", r"mine.toml: there is no table 'atack'. Did you mean 'attack'\?"),
        ("attack = {name='lie2', fraction=.2}".replace(".2", "0.2"), r"mine.toml: attack.name: There is no attack"),
        ("attack = {name='lei', fraction=0.2}", r"Did you mean 'lie'\?"),
        ("attack = {name='gauss', sgima=1, fraction=0.2}", r"mine.toml: attack.sgima.*Did you mean 'sigma'\?"),
        ("attack = {name='gauss', sigma='big', fraction=0.2}", r"attack.sigma must be a number. Got 'big'"),
        ("attack = 'lie'", r"attack.fraction is needed"),
        ("attack = {name='lie', fraction=20}", r"attack: The `fraction` parameter .* from 0 to 1. Got 20.0"),
        ("[federation]\nrounds = '3'", r"federation.rounds must be a whole number. Got '3'"),
        ("[federation]\nrounds = 2.5", r"federation.rounds must be a whole number. Got 2.5"),
        ("[federation]\nrounds = true", r"federation.rounds must be a whole number. Got True"),
        ("[federation]\nround = 2", r"federation.round: there is no such parameter. Did you mean 'rounds'\?"),
        ("[federation]\nper_round = 200", r"federation: The `per_round` .* from 1 to 100"),
        (
            "[federation]\nper_round = 0.0",
            r"federation: The `per_round` .* a fraction above 0 and up to 1. Got 0.0",
        ),
        ("[federation]\nper_round = 1.5", r"federation: The `per_round` .* Got 1.5"),
        (
            "federation = {rounds = 4}\nattack = {name = 'lie', fraction = 0.2, start = 5}",
            r"attack.start is 5, but federation.rounds is 4",
        ),
        (
            "federation = {rounds = 4}\npoison = 'label-flip'\nattack = {fraction = 0.2, start = 5}",
            r"attack.start is 5, but federation.rounds is 4",
        ),
        (
            "federation = {clients = 10}\nattack = {name = 'lie', fraction = 1.0}\n"
            "filter = {name = 'flanders', keep = 'm-b'}",
            r"filter.keep: m-b is 0: all 10 clients of the round are malicious",
        ),
        ("federation = 3", r"federation must be a table"),
        ("[filter]\nkeep = 3", r"filter.name: which filter\? Known: flanders"),
        ("filter = 3", r"filter must be a table"),
        ("filter = {name = 'flanders', keep = 'm-c'}", r"filter.keep must be .*or one of 'b', 'm-b'. Got 'm-c'"),
        ("filter = {name = 'flanders', keep = 0}", r"filter: The `keep` parameter of Flanders must be"),
        ("filter = 'none'", r"filter.name may not be 'none'"),
        ("[filter]\nname = ['keep-all', 'flanders']\nkeep = 3", r"filter.keep: .* goes with them"),
        ("filter = {name = {name = 'flanders', keep = 2}, keep = 3}", r"filter.keep is given twice"),
        ("[data]\npartition = 'iid'\nalpha = 3", r"data.alpha: neither 'digits' nor 'iid' has such a parameter"),
        ("[data]\nalpha = 3\npartition = {name = 'dirichlet', alpha = 3}", r"data.alpha is given twice"),
        ("[data]\ndataset = 'minst'", r"data.dataset.name: There is no dataset.*Did you mean 'mnist'\?"),
        ("[training]\nlearning_rate = nan", r"training.learning_rate is nan"),
        ("[training]\nlearning_rate = 2020-01-01", r"training.learning_rate must be a number"),
        ("aggregator = {name = 'none', preaggregators = 'nnm'}", r"aggregator: preaggregators need a rule"),
        ("aggregator = {name = 'krum', preaggregators = 'nmn'}", r"aggregator.preaggregators.name: .*'nnm'"),
        ("[run]\nchunk = [1, 2]", r"run.chunk cannot be an axis"),
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
        parse("[attack]\nname = ['lie', 'gaus']\nfraction = 0.2")
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


def test_a_rule_that_is_told_the_truth_is_another_run_and_others_keep_their_ids():
    rule = {"name": "multi-krum", "num_malicious": 1}
    plain, told = (parse_spec({"aggregator": {**rule, "informed": told}})[0] for told in (False, True))
    assert plain.id == parse_spec({"aggregator": rule})[0].id
    assert plain.id != told.id
    assert "informed" not in plain.canonical["aggregator"]
    assert make_setting(told).informed is True
    assert make_setting(plain).informed is False


def test_sybils_are_another_run_and_others_keep_their_ids():
    attack = {"name": "lie", "fraction": 0.2}
    plain, sybils = (parse_spec({"attack": {**attack, "sybils": sybils}})[0] for sybils in (False, True))
    assert plain.canonical["attack"] == {**attack, "z": None, "start": 1, "rotating": True, "omniscient": True}
    assert plain.id != sybils.id
    assert make_setting(plain).sybils is False
    assert make_setting(RunSpec(json.loads(sybils.text))).sybils is True
    (poisoned,) = parse_spec({"poison": "label-flip", "attack": {"fraction": 0.2, "sybils": True}})
    assert make_setting(poisoned).sybils is True


def test_attackers_can_be_the_same_from_the_first_round_on():
    text = "attack = {name = 'on-off', base = 'lie', fraction = 0.2, start = 1, rotating = false}"
    setting = make_setting(one(text))
    assert (setting.attack_start, setting.rotating) == (1, False)
    assert setting.attack == flanders.ATTACKS.make("on-off", base="lie")


@pytest.mark.parametrize(
    "tree",
    [
        {"aggregator": {"name": "fedavg", "informed": True}},
        {"aggregator": {"name": "krum", "informed": True, "preaggregators": "nnm"}},
        {"aggregator": {"name": "krum", "informed": "yes"}},
        {"fallback": {"name": "krum", "informed": True}},
    ],
)
def test_only_the_aggregator_itself_can_be_told_the_truth(tree):
    with pytest.raises(InputError, match="informed"):
        parse_spec(tree)
