"""For every test: repeatable random numbers, an order that can be turned round, skips in one line a kind."""

from __future__ import annotations

import os
import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from playwright.sync_api import expect, sync_playwright

import chromium
from libraries import LIBRARIES

torch.set_num_threads(1)
expect.set_options(timeout=chromium.PATIENCE)  # it asks again and again until then

# Profiles start from Hypothesis's own defaults, which are others where the variable CI is set.
settings.register_profile(
    "repeatable",
    settings.get_profile("default"),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile(
    "thorough",
    settings.get_profile("default"),
    max_examples=2000,
    print_blob=True,  # a line with which to try a failing example again
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)
if PROFILE == "repeatable":
    # Else examples contain the constants of whatever modules of ours have been imported by then: they would change
    # with the order of the tests, and with every edit of the source.
    providers.is_local_module_file = lambda path: False


PLAIN = {"all tests skipped by +SKIP option": "an example of the documentation is there to be read, not run"}
"""What pytest's own reasons mean."""


def pytest_addoption(parser):
    parser.addoption("--reverse", action="store_true", help="run the last test first")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.option.reverse:
        items.reverse()
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)


def pytest_terminal_summary(terminalreporter):
    """Say in one line for each reason how many tests were skipped for it."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {PLAIN.get(reason, reason)}")


@pytest.fixture(autouse=True)
def _same_numbers():
    """Start the generators that libraries share from the same state, whichever tests came before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture(params=list(LIBRARIES))
def convert(request):
    """Turns a NumPy array into one of each library in turn."""
    return LIBRARIES[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)


@pytest.fixture(scope="module")  # its event loop must not be there for the tests of others
def browser():
    """Chromium, without its own traffic."""
    with sync_playwright() as playwright:
        launched = chromium.launch(playwright)
        if launched is None:
            pytest.skip(chromium.MISSING)
        yield launched
        launched.close()
