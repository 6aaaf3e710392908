"""The array libraries on which everything must work."""

from __future__ import annotations

import array_api_strict
import numpy as np
import torch

LIBRARIES = {"numpy": np.asarray, "torch": torch.asarray, "strict": array_api_strict.asarray}
