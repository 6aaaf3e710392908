from __future__ import annotations

import time

import torch

from flanders.simulation.clock import Clock


def test_a_phase_inside_another_one_is_counted_once(monkeypatch):
    clock, now = Clock(torch.device("cpu")), 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    with clock.timing("filter"):
        now += 1
        for _ in range(2):
            with clock.timing("aggregate"):
                now += 10
        now += 100
    with clock.timing("train"):
        now += 1000
    assert clock.seconds == {"train": 1000, "attack": 0, "filter": 101, "aggregate": 20, "evaluate": 0}
