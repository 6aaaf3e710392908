"""Training clients together must be training each of them alone."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from flanders.checks import InputError
from flanders.models import MODELS, BatchNorm2d, Layout
from flanders.simulation.training.batches import ClientData, schedule
from flanders.simulation.training.stacked_layers import dropout_mask
from flanders.simulation.training.stacked_module import is_sequence, stacked
from flanders.simulation.training.threads import side_by_side
from flanders.simulation.training.trainer import Trainer, Training

SHAPE, CLASSES = (3, 4, 4), 5


class Wrapped(nn.Module):
    """A module that is no sequence, whatever is in it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return x + self.scale * self.linear(x)


class Tied(nn.Sequential):
    """A layer that is used twice."""

    def __init__(self):
        layer = nn.Linear(48, 48)
        super().__init__(nn.Flatten(), layer, nn.Tanh(), layer, nn.Linear(48, CLASSES))


UNEVEN = [20, 7, 33, 16, 1, 40]
MODULES = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 20), nn.ReLU(), nn.Linear(20, CLASSES)),
    "cnn": lambda: nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 1), nn.ReLU()),
        *(nn.Conv2d(6, 6, 3, groups=6, stride=2, padding=1), nn.Flatten(), nn.Linear(6, CLASSES)),
    ),
    "batch-norm": lambda: nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Conv2d(4, 2, 1, bias=False), BatchNorm2d(2), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(32, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)),
    ),
    "layer-norm": lambda: nn.Sequential(
        *(nn.Flatten(2), nn.Linear(16, 6), nn.LayerNorm(6), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(18, CLASSES, bias=False)),
    ),
}
MODULES["wrapped cnn"] = lambda: Wrapped(MODULES["cnn"]())
MODULES["wrapped batch-norm"] = lambda: Wrapped(MODULES["batch-norm"]())
MODULES["residual"] = lambda: nn.Sequential(nn.Flatten(), Residual(48), nn.Tanh(), nn.Linear(48, CLASSES))
MODULES["tied"] = lambda: Tied()
OPTIMIZERS = {
    "adam": Training("adam", 1e-3, batch_size=8, epochs=2),
    "sgd": Training("sgd", 0.05, batch_size=8, epochs=2),
    "momentum": Training("sgd", 0.05, momentum=0.9, batch_size=8, epochs=2),
    "in order": Training("adam", 1e-3, batch_size=8, shuffle=False),
}


def federation(sizes, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x = torch.from_numpy(rng.standard_normal((n + 3, *shape), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, CLASSES, n + 3))
    return ClientData.of(x, y, np.split(rng.permutation(n + 3)[:n], np.cumsum(sizes)[:-1]))


def start(module):
    return Layout.of(module).flatten(module), {name: b.clone() for name, b in module.named_buffers()}


def alone(module, data, training, client, seed, least=1):
    """Train one client as everybody would: a module, an optimizer of PyTorch, a loop."""
    module = copy.deepcopy(module).train()
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[training.optimizer]
    options = {"momentum": training.momentum} if training.optimizer == "sgd" else {}
    optimizer = kind(module.parameters(), lr=training.learning_rate, **options)
    t = training
    plan = schedule(
        data,
        np.array([client]),
        seed,
        batch_size=t.batch_size,
        epochs=t.epochs,
        shuffle=t.shuffle,
        least=least,
    )
    for step in range(plan.counts.shape[1]):
        batch = plan.table[0, step, : plan.counts[0, step]]
        for layer in module.modules():
            if isinstance(layer, Masked):
                layer.key = plan.keys[0, step]
        optimizer.zero_grad()
        functional.cross_entropy(module(data.x[batch]), data.y[batch]).backward()
        optimizer.step()
    return Layout.of(module).flatten(module), dict(module.named_buffers())


@pytest.mark.parametrize("chunk", [None, 1, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODULES)
def test_training_together_equals_training_alone(name, optimizer, chunk):
    torch.manual_seed(1)
    module, data, training = MODULES[name](), federation(UNEVEN), OPTIMIZERS[optimizer]
    model, buffers = start(module)
    trained = Trainer(module, data, training, chunk=chunk).train(model, buffers, [5, 0, 1, 2, 3, 4], seed=7)
    for row, client in enumerate([5, 0, 1, 2, 3, 4]):
        expected, own = alone(module, data, training, client, 7, least=2 if "batch-norm" in name else 1)
        torch.testing.assert_close(trained.updates[row], expected, atol=1e-5, rtol=0)
        for buffer in buffers:
            torch.testing.assert_close(trained.buffers[buffer][row], own[buffer], atol=1e-5, rtol=0)
    assert float((trained.updates[0] - model).abs().max()) > 0.004


def test_a_step_of_two_clients_is_what_one_works_out_by_hand():
    """Two clients with one example each, logits w x with w = 0: the gradient is (softmax - onehot) x = (±1/2) x."""
    module = nn.Linear(1, 2, bias=False)
    data = ClientData.of(torch.tensor([[2.0], [4.0]]), torch.tensor([0, 1]), [np.array([0]), np.array([1])])
    trained = Trainer(module, data, Training("sgd", 0.1)).train(torch.zeros(2), {}, [0, 1], seed=0)
    torch.testing.assert_close(trained.updates, torch.tensor([[0.1, -0.1], [-0.2, 0.2]]))


def test_what_a_client_learns_does_not_depend_on_who_else_is_trained():
    torch.manual_seed(0)
    module, data = MODELS.make("mlp4", dropout=0.5).build(SHAPE, CLASSES), federation(UNEVEN)
    model, buffers = start(module)
    trainer = Trainer(module, data, Training(batch_size=8, epochs=2))
    everyone = trainer.train(model, buffers, range(6), seed=3).updates
    some = trainer.train(model, buffers, [4, 2], seed=3).updates
    torch.testing.assert_close(some, everyone[[4, 2]], atol=1e-6, rtol=0)
    another = Trainer(module, data, Training(batch_size=8, epochs=2), chunk=2)
    torch.testing.assert_close(another.train(model, buffers, range(6), seed=3).updates, everyone, atol=1e-6, rtol=0)


def test_training_again_gives_the_same_bytes_and_another_seed_others():
    module, data = MODELS.make("mlp4").build(SHAPE, CLASSES), federation(UNEVEN)
    model, buffers = start(module)
    trainer = Trainer(module, data, Training(batch_size=8))
    first = trainer.train(model, buffers, range(6), seed=3).updates
    assert torch.equal(first, trainer.train(model, buffers, range(6), seed=3).updates)
    assert torch.equal(
        first, Trainer(module, data, Training(batch_size=8)).train(model, buffers, range(6), 3).updates
    )
    assert not torch.equal(first, trainer.train(model, buffers, range(6), seed=4).updates)


class Masked(nn.Module):
    """Dropout with a mask that is given."""

    def __init__(self, number, p):
        super().__init__()
        self.number, self.p, self.key = number, p, torch.tensor(0, dtype=torch.int32)

    def forward(self, x):
        return x * dropout_mask(self.key, x.shape, self.number, self.p)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d])
def test_dropout_drops_its_share_and_scales_up_the_rest(kind, wrapped):
    layer = Wrapped(kind(0.25)) if wrapped else kind(0.25)
    x = torch.ones(2, 500, 40, 3, 3)
    y = stacked(layer)({}, {}, torch.tensor([12345, 12346], dtype=torch.int32), x)
    assert y.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert float((y == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert bool((y.flatten(3).std(3) == 0).all()) == (kind is nn.Dropout2d)
    assert float((y[0] == y[1]).float().mean()) == pytest.approx(0.25**2 + 0.75**2, abs=0.03)
    assert torch.equal(stacked(layer, training=False)({}, {}, torch.zeros(2, dtype=torch.int32), x), x)


@pytest.mark.parametrize("wrapped", [False, True])
def test_dropout_trained_together_is_dropout_trained_alone(wrapped):
    torch.manual_seed(0)
    module = MODELS.make("mlp4", dropout=0.3).build(SHAPE, CLASSES)
    whole = Wrapped(module) if wrapped else module
    data, training = federation(UNEVEN), Training(batch_size=8, epochs=2)
    model, buffers = start(module)
    trained = Trainer(whole, data, training).train(model, buffers, range(6), seed=7)
    numbers = {layer: number for number, layer in enumerate(whole.modules())}
    masked = nn.Sequential(*[Masked(numbers[m], 0.3) if isinstance(m, nn.Dropout) else m for m in module])
    for client in range(6):
        expected, _ = alone(masked, data, training, client, 7)
        torch.testing.assert_close(trained.updates[client], expected, atol=1e-5, rtol=0)


def test_functional_dropout_is_random_per_client_and_repeatable():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(48, CLASSES)

        def forward(self, x):
            return self.linear(functional.dropout(x.flatten(1), 0.5, self.training))

    module = Dropping()
    x, y = torch.ones(16, *SHAPE), torch.zeros(16, dtype=torch.int64)
    data = ClientData.of(x, y, [np.arange(8), np.arange(8)])
    model, buffers = start(module)
    trainer = Trainer(module, data, Training(batch_size=8, shuffle=False))
    first = trainer.train(model, buffers, [0, 1], seed=1).updates
    assert torch.equal(first, trainer.train(model, buffers, [0, 1], seed=1).updates)
    assert not torch.equal(first[0], first[1])


def test_a_client_goes_through_all_its_examples_once_an_epoch_in_a_new_order():
    data = federation(UNEVEN)
    plan = schedule(data, np.arange(6), 5, batch_size=8, epochs=3, shuffle=True)
    for row, client in enumerate(plan.rows):
        own = data.examples[data.starts[client] : data.starts[client] + data.sizes[client]].tolist()
        steps = -(-len(own) // 8)
        epochs = []
        for e in range(3):
            batches = [
                plan.table[row, s, : plan.counts[row, s]].tolist() for s in range(e * steps, (e + 1) * steps)
            ]
            epochs.append([example for batch in batches for example in batch])
        assert all(sorted(epoch) == sorted(own) for epoch in epochs)
        if len(own) > 5:
            assert epochs[0] != epochs[1] != epochs[2]
        padding = set(plan.table[row].flatten().tolist())
        assert padding <= set(own)


def test_no_step_is_taken_for_clients_that_are_done():
    data = federation([40, 8, 8, 8])
    plan = schedule(data, np.arange(4), 0, batch_size=8, epochs=1, shuffle=True)
    assert [(s.first, s.last) for s in plan.slots(apart=False)] == [(0, 4), *[(0, 1)] * 4]
    uneven = schedule(federation([20, 13, 12]), np.arange(3), 0, batch_size=8, epochs=1, shuffle=True)
    assert [tuple(s) for s in uneven.slots(apart=False)] == [
        (0, 0, 3, 8, True),
        (1, 0, 3, 8, False),
        (2, 0, 1, 4, True),
    ]
    assert [tuple(s) for s in uneven.slots(apart=True)] == [
        (0, 0, 3, 8, True),
        (1, 0, 1, 8, True),
        (1, 1, 2, 5, True),
        (1, 2, 3, 4, True),
        (2, 0, 1, 4, True),
    ]


def test_examples_set_aside_are_never_trained_on():
    training = Training(validation_fraction=0.2)
    rng = np.random.default_rng(0)
    kept = training.kept_examples(np.arange(600), rng)
    assert len(kept) == 480
    assert len(set(kept.tolist())) == 480
    assert training.kept_examples(np.array([7]), rng).tolist() == [7]
    assert len(Training(validation_fraction=0.9).kept_examples(np.arange(3), rng)) == 1


def test_the_global_model_and_the_module_stay_as_they_were():
    module, data = MODULES["batch-norm"](), federation(UNEVEN)
    model, buffers = start(module)
    before, own = model.clone(), copy.deepcopy(module.state_dict())
    Trainer(module, data, OPTIMIZERS["adam"]).train(model, buffers, range(6), seed=0)
    assert torch.equal(model, before)
    assert all(torch.equal(own[name], tensor) for name, tensor in module.state_dict().items())
    assert all(torch.equal(own[name], buffers[name]) for name in buffers)


def test_sequences_are_told_from_other_modules():
    assert is_sequence(MODULES["batch-norm"]())
    assert is_sequence(nn.Linear(2, 2))
    assert not is_sequence(MODULES["residual"]())
    shared = nn.Linear(3, 3)
    assert not is_sequence(nn.Sequential(shared, nn.ReLU(), shared))
    twin = nn.Linear(3, 3)
    twin.weight = shared.weight
    assert not is_sequence(nn.Sequential(shared, nn.ReLU(), twin))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_gives_the_same_logits_stacked_as_alone(name):
    module, x = MODULES[name](), torch.randn(3, 7, *SHAPE)
    for training in (True, False):
        module.train(training)
        model, buffers = start(module)
        tensors = {n: p.expand(3, *p.shape).clone() for n, p in module.named_parameters()}
        own = {n: b.expand(3, *b.shape).clone() for n, b in buffers.items()}
        logits = stacked(module, training=training)(tensors, own, torch.zeros(3, dtype=torch.int32), x)
        for client in range(3):
            module.load_state_dict({**Layout.of(module).unflatten(model), **buffers}, strict=False)
            torch.testing.assert_close(logits[client], module(x[client]), atol=1e-5, rtol=1e-5)
            for buffer, value in module.named_buffers():
                torch.testing.assert_close(own[buffer][client], value)


def test_threads_train_chunks_side_by_side_to_the_same_bytes():
    module, data = MODULES["wrapped cnn"](), federation([9, 30, 4, 17, 21, 8, 8, 12])
    model, buffers = start(module)
    alone_, threaded = (Trainer(module, data, Training(batch_size=8), chunk=2) for _ in range(2))
    threaded.workers = 3
    expected = alone_.train(model, buffers, range(8), seed=1).updates
    for _ in range(3):
        assert torch.equal(threaded.train(model, buffers, range(8), seed=1).updates, expected)
    assert threaded.chunk_of(8) == 2


def test_every_item_is_worked_on_once_and_results_keep_their_order():
    threads = torch.get_num_threads()
    in_use = {"a": 0, "b": 0}

    def work(tool, item):
        in_use[tool] += 1
        assert in_use[tool] == 1
        time.sleep(0.001 * (item % 3))
        in_use[tool] -= 1
        return item * item

    assert side_by_side(work, ["a", "b"], list(range(30))) == [i * i for i in range(30)]
    assert side_by_side(work, ["a"], [3]) == [9]
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda tool, item: 1 // item, ["a", "b"], [1, 0, 1])
    assert torch.get_num_threads() == threads


def test_a_module_that_draws_numbers_itself_trains_in_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        data = federation(UNEVEN)
        assert Trainer(MODULES["mlp"](), data, Training()).workers == 2
        assert Trainer(MODELS.make("mlp4").build(SHAPE, CLASSES), data, Training()).workers == 2
        assert Trainer(nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.RReLU()), data, Training()).workers == 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"optimizer": "adams"}, "Did you mean 'adam'"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": 0.5}, "epochs"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_training_says_what_is_wrong_with_its_parameters(wrong, message):
    with pytest.raises(InputError, match=message):
        Training(**wrong)


@pytest.mark.parametrize("name", ["mlp2", "cnn6", "small-cnn", "logistic"])
def test_the_registered_models_train_together_as_alone(name):
    shape = (3, 16, 16)
    torch.manual_seed(0)
    module, data = MODELS.make(name).build(shape, CLASSES), federation([9, 5], shape)
    training = Training("sgd", 0.1, momentum=0.5, batch_size=4)
    model, buffers = start(module)
    trained = Trainer(module, data, training).train(model, buffers, [0, 1], seed=2)
    for client in (0, 1):
        expected, _ = alone(module, data, training, client, 2)
        torch.testing.assert_close(trained.updates[client], expected, atol=1e-5, rtol=0)
