"""Functions that read the spec of a run: the name of its attack, its seed, and so on.

A spec describes a run, and consists of tables inside tables. Modules of `results` and `report` call these
functions, so that they need not know the keys of a spec. A dotted key such as `threat.attack.name` names a value in
a table inside a table.
"""

from __future__ import annotations

from flanders.checks import resolve_count
from flanders.results.tree import Table, Tree, flatten

SIMULATOR, FLOWER = "simulator", "flower"
"""The engines that carry out runs: the simulator of this package, and the simulation runtime of Flower."""

# Dotted keys of a spec:
DATASET = "data.dataset.name"
MODEL = "model.name"
SEED = "federation.seed"
FRACTION = "threat.fraction"
ATTACK_NAMES = ("threat.attack.name", "threat.data_poison.name")
"""The key of the attack's name, and the key of the data poison's name. An attack changes what malicious clients
send. A data poison changes the data on which they train."""
ATTACK_KEYS = (*ATTACK_NAMES, FRACTION)
"""The keys that name the attack. The fraction is the share of malicious clients."""
DEFENCE_KEYS = ("filter.name", "aggregator.name", "aggregator.preaggregators")
"""The keys that name the defence."""
LABEL_KEYS = (DATASET, *ATTACK_KEYS, *DEFENCE_KEYS, SEED, "engine")
"""The keys whose values are in the `label` of every run."""
THREAT = "threat"
"""The section of a spec that describes the attack."""
DEFENCE = ("filter", "aggregator", "fallback", "informed")
"""The sections of a spec that describe the defence. `informed` says whether the aggregator is told the number of
malicious clients."""


def section_of(key: str) -> str:
    """Return the section of a spec that a dotted key belongs to.

    Examples
    --------
    >>> section_of("threat.attack.name")
    'threat'
    """
    return key.partition(".")[0]


def last_part(key: str) -> str:
    """Return the last part of a dotted key.

    Examples
    --------
    >>> last_part("threat.attack.name")
    'name'
    """
    return key.rpartition(".")[2]


def owners_of(key: str) -> tuple[str, ...]:
    """Return the keys that decide whether a run has a parameter: the key `name` of each table around the parameter.

    For example, only some filters have a parameter `keep`. So `filter.name` decides whether there is `filter.keep`.
    A parameter such as `look` of a filter may be a table with a `name` of its own. Then this name decides, too.

    Examples
    --------
    >>> owners_of("filter.keep")
    ('filter.name',)
    >>> owners_of("filter.look.size"), owners_of("filter.look.name")
    (('filter.look.name', 'filter.name'), ('filter.name',))
    >>> owners_of("threat.start")
    ('threat.attack.name', 'threat.data_poison.name')
    """
    table = key.rpartition(".")[0]
    if table == THREAT:
        return ATTACK_NAMES
    owners = []
    while table:
        owners.append(f"{table}.name")
        table = table.rpartition(".")[0]
    return tuple(owner for owner in owners if owner != key)


def flat_spec(spec: Tree) -> Table:
    """Return the values of a spec by dotted keys, without values that have no effect.

    These are left out: empty values, the section `threat` if there is no attack, `clients_per_round` if all clients
    take part, and `informed` if it is false.

    Examples
    --------
    >>> flat_spec({"threat": {"attack": {"name": "lie"}, "data_poison": None, "fraction": 0.2}, "fallback": None})
    {'threat.attack.name': 'lie', 'threat.fraction': 0.2}
    >>> flat_spec({"threat": {"attack": None, "fraction": 0.2}, "federation": {"num_clients": 9}})
    {'federation.num_clients': 9}
    """
    flat = {key: value for key, value in flatten(spec).items() if value is not None and value != []}
    if not flat.get("informed"):
        flat.pop("informed", None)
    if flat.get("federation.clients_per_round") == flat.get("federation.num_clients"):
        flat.pop("federation.clients_per_round", None)
    if not any(key in flat for key in ATTACK_NAMES):
        flat = {key: value for key, value in flat.items() if section_of(key) != THREAT}
    return flat


def is_live(spec: Tree) -> bool:
    """Whether a run is a live federation: its clients are real, and it is not known which of them attack."""
    return "live" in spec


def is_attacked(spec: Tree) -> bool:
    """Whether a spec asks for an attack or for a data poison."""
    return bool(_attacks(spec))


def attack_name(spec: Tree) -> str:
    """Return the names of a run's attack and data poison.

    The result is `none` if the run has neither, and `unknown` if the run is a live federation.
    """
    return "unknown" if is_live(spec) else " + ".join(_attacks(spec)) or "none"


def attack_fraction(spec: Tree) -> float:
    """Return the share of malicious clients that a spec asks for. It is 0 if there is no attack."""
    return float(spec[THREAT].get("fraction") or 0.0) if is_attacked(spec) else 0.0


def attack_start(spec: Tree) -> int:
    """Return the first round with an attack. It is 1 if there is no attack."""
    return int(spec[THREAT].get("start") or 1) if is_attacked(spec) else 1


def dataset_name(spec: Tree) -> str:
    """Return the name of a run's dataset."""
    return str(spec["data"]["dataset"]["name"])


def filter_name(spec: Tree) -> str:
    """Return the name of a run's filter."""
    return str(spec["filter"]["name"])


def aggregator_name(spec: Tree) -> str:
    """Return the names of a run's pre-aggregators and of its aggregator, e.g. `nnm > krum`."""
    return " > ".join([*preaggregator_names(spec), str(spec["aggregator"]["name"])])


def preaggregator_names(spec: Tree) -> list[str]:
    """Return the names of the pre-aggregators in the order in which they are applied."""
    return [str(link["name"]) for link in spec["aggregator"].get("preaggregators") or []]


def seed(spec: Tree) -> int | None:
    """Return the seed of a run, or None for a live federation."""
    value = spec["federation"].get("seed")
    return None if value is None else int(value)


def num_rounds(spec: Tree) -> int | None:
    """Return the number of rounds that a spec asks for, or None for a live federation."""
    value = spec["federation"].get("rounds")
    return None if value is None else int(value)


def engine(spec: Tree) -> str:
    """Return the engine that carries out a run: `simulator` or `flower`."""
    return str(spec.get("engine", SIMULATOR))


def client_counts(flat: Tree) -> tuple[int, int]:
    """Return how many clients take part in a round, and how many of them are malicious.

    `flat` is what `flat_spec` returns.
    """
    m = int(flat.get("federation.clients_per_round", flat["federation.num_clients"]))
    return m, resolve_count(float(flat.get(FRACTION, 0.0)), m)


def label(spec: Tree) -> str:
    """Return a label of a run: its dataset, attack, defence and seed."""
    name = attack_name(spec)
    attack = name if name == "none" else f"{name} r={attack_fraction(spec):g}"
    defence = f"{filter_name(spec)} + {aggregator_name(spec)}"
    if is_live(spec):  # it has no seed, and the attack is not known
        return f"{dataset_name(spec)}, {defence}"
    place = f", on {engine(spec)}" if "engine" in spec else ""
    return f"{dataset_name(spec)}, {attack}, {defence}, seed {seed(spec)}{place}"


def _attacks(spec: Tree) -> list[str]:
    threat = spec.get(THREAT) or {}
    return [str(part["name"]) for part in (threat.get("attack"), threat.get("data_poison")) if part]
