from __future__ import annotations

import math
import multiprocessing
import time

import pytest

from flanders.experiments import workers
from flanders.experiments.workers import Workers


@pytest.fixture
def sleeper():
    """A process that would run for minutes."""
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(3600,))
    process.start()
    yield process
    process.kill()
    process.join()


def test_a_worker_that_has_finished_and_does_not_exit_is_ended_and_has_not_died(sleeper, monkeypatch):
    monkeypatch.setattr(workers, "GRACE", math.inf)
    group = Workers([sleeper])
    group.end_overdue()
    assert group.alive()
    group.finished(0)
    group.end_overdue()
    assert group.alive()  # it still has time to exit by itself
    monkeypatch.setattr(workers, "GRACE", -1.0)
    group.end_overdue()
    sleeper.join(300)
    assert not group.alive()
    assert group.died() == 0


def test_a_worker_that_ends_without_having_finished_has_died(sleeper):
    group = Workers([sleeper])
    group.end()
    assert not group.alive()
    assert group.died() == 1
