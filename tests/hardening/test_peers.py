"""One bad reply of ten does no harm to the wrapper, and the comparison sees the harm that it does elsewhere."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg, FedMedian

from flanders.flower import FilteredStrategy
from hardening.bad_inputs import INPUTS
from hardening.peers import Judge, Peer, Survival, flat, start, summary, through_flower


@pytest.fixture(scope="module")
def judge():
    return Judge()


@pytest.mark.parametrize("inner", [FedAvg, FedMedian])
@pytest.mark.parametrize("name", INPUTS)
def test_one_bad_reply_of_ten_does_no_harm(judge, name, inner):
    found = judge.judge(partial(through_flower, lambda: FilteredStrategy(inner()), name))
    assert found is Survival.SURVIVED


@pytest.mark.parametrize(
    ("name", "end"), [("all NaN", Survival.BROKEN), ("1e30", Survival.TAKEN), ("one array missing", Survival.ENDED)]
)
def test_the_comparison_sees_what_happens_to_a_bare_strategy(judge, name, end):
    assert judge.judge(partial(through_flower, FedAvg, name)) is end


def test_a_model_that_stays_or_is_near_has_survived_and_one_that_is_far_was_taken_over(judge):
    assert judge.judge(lambda: None) is Survival.SURVIVED
    assert judge.judge(lambda: {name: array + 1e6 for name, array in start().items()}) is Survival.TAKEN
    assert judge.judge(lambda: {name: array * np.nan for name, array in start().items()}) is Survival.BROKEN
    assert np.isfinite(flat(start())).all()


def test_the_table_has_a_row_for_each_defence():
    rows = summary([Peer("a", {"x": Survival.SURVIVED, "y": Survival.ENDED})]).splitlines()
    assert rows[-1] == "| a | 2 | 1 | 1 | 0 | 0 |"
