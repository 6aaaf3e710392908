from __future__ import annotations

import numpy as np
import torch

from flanders.linalg.masks import binary_masks, descended_masks, masked_mean, starting_masks

RNG = np.random.default_rng(0)
ROWS, LOGITS, SLOPE = RNG.normal(size=(4, 30)), RNG.normal(size=(4, 30)), RNG.normal(size=30)


def test_untrained_masks_give_the_plain_mean():
    np.testing.assert_allclose(masked_mean(ROWS, starting_masks(ROWS)), ROWS.mean(axis=0), atol=1e-15)


def test_a_step_goes_down_the_gradient_that_pytorch_finds():
    rows, logits = torch.tensor(ROWS), torch.tensor(LOGITS, requires_grad=True)
    weights = torch.sigmoid(logits)
    mean = (weights * rows).sum(0) / weights.sum(0)
    (torch.tensor(SLOPE) @ mean).backward()
    found = descended_masks(ROWS, LOGITS, masked_mean(ROWS, LOGITS), SLOPE, rate=0.5)
    np.testing.assert_allclose(found, LOGITS - 0.5 * logits.grad.numpy(), atol=1e-14)


def test_no_step_changes_a_logit_by_more_than_one():
    found = descended_masks(ROWS, LOGITS, masked_mean(ROWS, LOGITS), SLOPE, rate=1e9)
    np.testing.assert_allclose(np.abs(found - LOGITS), 1.0)


def test_a_mask_is_on_where_its_weight_is_above_a_half():
    assert binary_masks(np.array([[-0.1, 0.0, 0.1]])).tolist() == [[0, 0, 1]]
