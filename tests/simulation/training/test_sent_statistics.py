"""The model whose clients send the running statistics of batch normalisation as parameters."""

from __future__ import annotations

import numpy as np
import torch

from flanders.models import MODELS, Layout
from flanders.simulation.training.batches import ClientData
from flanders.simulation.training.stacked_module import stacked
from flanders.simulation.training.trainer import Trainer, Training


def trained(name, module, data, training):
    model, buffers = Layout.of(module).flatten(module), {n: b.clone() for n, b in module.named_buffers()}
    result = Trainer(module, data, training).train(model, buffers, range(2), seed=1)
    return Layout.of(module).unflatten(result.updates) | result.buffers


def test_statistics_that_are_sent_are_those_that_are_kept_aside():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((24, 3, 17, 17), dtype=np.float32))
    data = ClientData.of(x, torch.from_numpy(rng.integers(0, 5, 24)), np.split(np.arange(24), 2))
    training = Training("sgd", 0.01, momentum=0.9, batch_size=4)
    plain, sent = MODELS.make("mobilenet"), MODELS.make("mobilenet-reference")
    torch.manual_seed(0)
    one = plain.build((3, 17, 17), 5)
    torch.manual_seed(0)
    two = sent.build((3, 17, 17), 5)
    assert not list(two.buffers())
    expected, found = trained("mobilenet", one, data, training), trained("mobilenet-reference", two, data, training)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor.to(found[name].dtype)), name
    assert (found["1.num_batches_tracked"] == 3).all()
    with torch.no_grad():
        logits = [
            stacked(module, training=False)(
                {n: t for n, t in state.items() if n in dict(module.named_parameters())},
                {n: t for n, t in state.items() if n in dict(module.named_buffers())},
                torch.zeros(2, dtype=torch.int32),
                x.view(2, 12, 3, 17, 17),
            )
            for module, state in ((one, expected), (two, found))
        ]
    assert torch.equal(*logits)
