from __future__ import annotations

import gc
import logging

import pytest

from peers import flower

flower("serverapp.strategy")


@pytest.fixture(autouse=True)
def _flower_at_test_pace(monkeypatch):
    """Flower's strategies collect garbage after every reply, which takes longer than the tests do."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


@pytest.fixture
def flower_log(caplog):
    """Catch what is logged through Flower."""
    caplog.set_level(logging.INFO, logger="flwr")
    return caplog
