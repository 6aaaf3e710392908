from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("repeatable")

BACKENDS = {"numpy": np.asarray, "torch": torch.asarray, "strict": array_api_strict.asarray}


@pytest.fixture(params=list(BACKENDS))
def convert(request):
    """Turns a NumPy array into one of each library in turn."""
    return BACKENDS[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)
