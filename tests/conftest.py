from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from libraries import LIBRARIES

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("repeatable")


@pytest.fixture(params=list(LIBRARIES))
def convert(request):
    """Turns a NumPy array into one of each library in turn."""
    return LIBRARIES[request.param]


@pytest.fixture
def rng():
    return np.random.default_rng(20260101)
