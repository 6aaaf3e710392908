from __future__ import annotations

import urllib.request

import pytest

from flanders import InputError
from flanders.callbacks import Prometheus, RunInfo
from round_records import round_record

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")


def scraped(metrics):
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
        page = answer.read().decode()
    samples = [s for family in parser.text_string_to_metric_families(page) for s in family.samples]
    return {(s.name, *sorted(s.labels.values())): s.value for s in samples if not s.name.endswith("_created")}


@pytest.fixture
def metrics():
    served = Prometheus(port=0)
    yield served
    served.close()


def test_the_last_round_can_be_scraped_also_after_the_end(metrics) -> None:
    metrics.on_start(RunInfo("guard"))
    for number in (1, 2):
        metrics.on_round(
            round_record(number, [0, 1, 2], kept=[1, 1, 0], accuracy=0.25 * number, seconds={"filter": 2})
        )
    metrics.on_end()
    found = scraped(metrics)
    assert found["flanders_round", "guard"] == 2
    assert found["flanders_accuracy", "guard"] == 0.5
    assert found["flanders_clients", "dropped", "guard"] == 1
    assert found["flanders_client_rounds_total", "guard", "kept"] == 4
    assert found["flanders_seconds", "filter", "guard"] == 2
    assert ("flanders_loss", "guard") not in found  # it was not measured


def test_no_metric_grows_with_the_names_of_clients(metrics) -> None:
    metrics.on_round(round_record(1, [f"client {n}" for n in range(5)]))
    before = len(scraped(metrics))
    metrics.on_round(round_record(2, [f"other {n}" for n in range(500)], kept=[1] + [0] * 499))
    assert len(scraped(metrics)) == before


def test_several_runs_share_one_page(metrics) -> None:
    for name in ("a", "b"):
        one = metrics.sibling()
        one.on_start(RunInfo(name))
        one.on_round(round_record(1, [0]))
    found = scraped(metrics)
    assert (found["flanders_round", "a"], found["flanders_round", "b"]) == (1, 1)


def test_alarms_are_counted_by_kind(metrics) -> None:
    metrics.on_start(RunInfo("guard"))
    for number in range(1, 5):
        metrics.on_round(round_record(number, ["ann", "eve"], kept=[1, 0]))
    assert scraped(metrics)["flanders_alarms_total", "dropped-in-a-row", "guard"] == 1


def test_a_port_that_is_taken_is_told_at_once(metrics) -> None:
    with pytest.raises(InputError, match=r"cannot listen there: .*Choose another port"):
        Prometheus(port=metrics.port)
