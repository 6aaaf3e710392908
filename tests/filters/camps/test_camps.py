"""`Camps` judges each round by itself."""

from __future__ import annotations

import numpy as np

from filters.camps.federation import LAYERS, D, turned
from flanders.defense import Defense
from flanders.filters import Camps


def test_camps_remembers_no_client():
    defense = Defense(Camps())
    for seed in range(3):
        assert defense(turned(40, 8, seed), layers=LAYERS, global_model=np.zeros(D)).dropped == tuple(range(8))
    assert defense.state.signatures.clients == ()
