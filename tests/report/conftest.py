from __future__ import annotations

import copy

import numpy as np
import pytest

from chromium import PATIENCE
from flanders.record import PHASES
from flanders.results.run import RunSpec
from flanders.results.store import Store
from round_records import round_record

NO_THREAT = {
    "attack": None,
    "data_poison": None,
    "fraction": 0.0,
    "start": 1,
    "rotating": True,
    "omniscient": True,
    "sybils": False,
}
SPEC = {
    "data": {
        "dataset": {"name": "digits", "normalise_test": True},
        "partition": {"name": "dirichlet", "alpha": 0.5},
    },
    "model": {"name": "mlp2"},
    "training": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 32, "epochs": 1},
    "federation": {"num_clients": 100, "clients_per_round": 100, "rounds": 50, "seed": 0},
    "threat": NO_THREAT,
    "filter": {"name": "keep-all"},
    "aggregator": {"name": "fedavg", "preaggregators": []},
    "fallback": None,
    "informed": False,
}
LIE = {"name": "lie"}
SHARES = (0.25, 0.03, 0.07, 0.008, 0.025)
FLANDERS = {"name": "flanders", "keep": 20, "window": 2}


def canonical(**changes):
    """A canonical spec with some sections replaced.

    `seed`, `clients` and `rounds` go to the federation, `attack`, `data_poison` and `fraction` to the threat.
    """
    spec = copy.deepcopy(SPEC)
    for key, name in (("seed", "seed"), ("clients", "num_clients"), ("rounds", "rounds")):
        if key in changes:
            spec["federation"][name] = changes.pop(key)
    if changes.get("attack") or changes.get("data_poison"):
        spec["threat"]["fraction"] = 0.8
    for key in ("attack", "data_poison", "fraction"):
        if key in changes:
            spec["threat"][key] = changes.pop(key)
    spec.update(changes)
    return spec


def played(rng, *, clients=100, rounds=50, malicious=0.8, filtered=True, top=0.93, chosen=1.0, backdoor=False):
    """Rounds that look like those of a real run: malicious scores far above honest ones, few mistakes."""
    b = int(np.ceil(malicious * clients))
    for number in range(1, rounds + 1):
        selected = np.sort(rng.choice(clients, max(1, int(chosen * clients)), replace=False))
        m = selected.size
        bad = np.isin(selected, rng.choice(clients, b, replace=False))
        scores = np.where(bad, rng.lognormal(3.2, 0.9, m), rng.lognormal(0, 0.5, m)) * 3 * 0.97**number
        kept = np.ones(m, dtype=bool)
        if filtered and number > 1:
            kept = np.zeros(m, dtype=bool)
            kept[np.argsort(scores)[: max(1, m - int(bad.sum()) - (b > 0) * (number % 3 == 0))]] = True
        elif filtered:
            scores = np.full(m, np.nan)
        else:
            scores = np.zeros(m)
        scored = np.isfinite(scores).any() and filtered
        yield round_record(
            number,
            [int(c) for c in selected],
            accuracy=float(np.clip(0.1 + (top - 0.1) * (1 - np.exp(-number / 7)) + rng.normal(0, 0.008), 0, 1)),
            loss=float(2.3 * np.exp(-number / 9) + 0.2 + (3e4 * number if top < 0.2 else 0)),
            attack_success=0.05 + 0.001 * number if backdoor else float("nan"),
            seconds={phase: share * rng.uniform(0.8, 1.2) for phase, share in zip(PHASES, SHARES, strict=True)},
            malicious=bad,
            kept=kept,
            score=scores,
            probability=np.clip(scores / 60, 0, 1) if scored else None,
            reason=["" if k else f"score {s:.4g}" for k, s in zip(kept, scores, strict=True)],
            note="" if scored or not filtered else "no scores yet: all usable models were aggregated",
        )


def write_results(path, runs):
    """Write `(spec, rounds, end)` triples with the real store; `end` is done, running, failed or pending."""
    with Store(path) as store:
        for spec, rounds, end in runs:
            [id_] = store.add([RunSpec(spec)], {"flanders": "0"})
            if end == "pending":
                continue
            store.claim([id_])
            rounds = list(rounds)
            for n, record in enumerate(rounds, start=1):
                store.write_round(id_, record, last=end == "done" and n == len(rounds))
            if end == "failed":
                store.fail(id_, "InputError: the data </script><b>vanished</b>", "")
    return path


def demo_runs(rng, **size):
    """Attack-free, FedAvg alone, FedAvg behind FLANDERS."""
    share = {key: value for key, value in size.items() if key in ("clients", "rounds")}
    flanders = {**FLANDERS, "keep": size.get("clients", 100) // 5}
    return [
        (canonical(**share), played(rng, malicious=0, filtered=False, top=0.96, **size), "done"),
        (canonical(attack=LIE, **share), played(rng, filtered=False, top=0.11, **size), "done"),
        (canonical(attack=LIE, filter=flanders, **share), played(rng, **size), "done"),
    ]


@pytest.fixture
def results(tmp_path, rng):
    """A results file of three small runs."""
    return write_results(tmp_path / "results.sqlite", demo_runs(rng, clients=20, rounds=6))


@pytest.fixture
def make_spec():
    return canonical


@pytest.fixture
def make_rounds():
    return played


@pytest.fixture
def write():
    return write_results


@pytest.fixture
def open_page(browser):
    """Opens a file at a width; returns the page and the list its errors and outside requests are added to."""
    contexts = []

    def open_(path, width, scheme="light", *, touch=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=touch, is_mobile=touch
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page, problems = context.new_page(), []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda r: problems.append(r.url) if r.url.partition("#")[0] not in (path.as_uri(), "data:,") else None,
        )
        page.goto(path.as_uri())
        return page, problems

    yield open_
    for context in contexts:
        context.close()
