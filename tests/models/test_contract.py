from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from flanders.checks import InputError
from flanders.layers import last_layer_of
from flanders.models import MODELS, BatchNorm2d, Layout, Mlp4, tensor_sizes

SHAPES = {"cnn6": (3, 16, 16), "mobilenet": (3, 17, 17), "mobilenet-reference": (3, 17, 17)}
every_model = pytest.mark.parametrize("name", list(MODELS))


def build(name, input_shape=None, num_classes=10, seed=0):
    torch.manual_seed(seed)
    return MODELS.make(name).build(input_shape or SHAPES.get(name, (1, 8, 8)), num_classes)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters", "buffers"),
    [
        ("logistic", (1, 28, 28), 10, 7_850, 0),
        ("mlp2", (1, 28, 28), 10, 101_770, 0),
        ("mlp4", (1, 28, 28), 10, 242_762, 0),
        ("cnn6", (3, 32, 32), 10, 62_006, 0),
        ("mobilenet", (3, 32, 32), 100, 3_315_428, 21_915),
        ("mobilenet-reference", (3, 32, 32), 100, 3_337_343, 0),
        ("small-cnn", (1, 8, 8), 10, 6_090, 0),
        ("gru", (10, 30), 30, 20_382, 0),
    ],
)
def test_models_have_the_sizes_of_papers_and_docs(name, shape, classes, parameters, buffers):
    module = build(name, shape, classes)
    assert sum(tensor_sizes(module).values()) == parameters
    assert Layout.of(module).size == parameters
    assert Layout.of(module, parameters=False, buffers=True).size == buffers
    assert Layout.of(module, buffers=True).size == parameters + buffers
    assert module(torch.zeros(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 40, 21)])
@every_model
def test_every_model_adapts_to_the_images(name, shape):
    assert build(name, shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", ["logistic", "mlp2", "mlp4"])
def test_dense_models_take_any_shape(name):
    for shape in ((5,), (2, 3), (1, 8, 8)):
        assert build(name, shape, 3)(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(("name", "shape"), [("cnn6", (1, 8, 8)), ("mobilenet", (1, 16, 32)), ("small-cnn", (32,))])
def test_convolutions_refuse_what_is_too_small_and_name_another_model(name, shape):
    with pytest.raises(InputError, match="Use the model '"):
        build(name, shape)


@pytest.mark.parametrize(("shape", "classes"), [((), 10), ((0, 3), 10), ((1.5,), 10), ((4,), 1)])
def test_shapes_and_classes_that_make_no_sense_are_refused(shape, classes):
    with pytest.raises(InputError, match="Mlp2"):
        MODELS.make("mlp2").build(shape, classes)


@every_model
def test_the_same_seed_builds_the_same_model(name):
    layouts = [Layout.of(module).flatten(module) for module in (build(name), build(name), build(name, seed=1))]
    assert torch.equal(layouts[0], layouts[1])
    assert not torch.equal(layouts[0], layouts[2])


def clients(name, count=2, batch=3, dtype=torch.float32):
    """Models that differ by client, as stacked tensors, with a batch for each."""
    module = build(name).to(dtype)
    layout, buffers = Layout.of(module), {n: b.expand(count, *b.shape).clone() for n, b in module.named_buffers()}
    vectors = layout.flatten(module) + 0.01 * torch.randn(count, layout.size, dtype=dtype)
    x = torch.randn(count, batch, *SHAPES.get(name, (1, 8, 8)), dtype=dtype)
    return module, layout, vectors, buffers, x, torch.arange(count * batch).reshape(count, batch) % 10


@every_model
@pytest.mark.parametrize("shared", [False, True], ids=["stacked buffers", "shared buffers"])
def test_all_clients_at_once_learn_what_each_learns_alone(name, shared):
    module, layout, vectors, buffers, x, y = clients(name, dtype=torch.float64)
    for layer in module.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    before = {n: t.clone() for n, t in module.state_dict().items()}

    def loss(vector, buffers, x, y):
        state = {**layout.unflatten(vector), **buffers}
        logits = torch.func.functional_call(module, state, (x,))
        return cross_entropy(logits, y), {name: state[name] for name in buffers}

    used = {n: b[0] for n, b in buffers.items()} if shared else buffers
    together = vmap(grad(loss, has_aux=True), in_dims=(0, None if shared else 0, 0, 0), randomness="different")
    gradients, after = together(vectors, used, x, y)
    for i in range(len(x)):
        alone = build(name).double()
        for layer in alone.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
        alone.load_state_dict(layout.unflatten(vectors[i]), strict=False)
        cross_entropy(alone(x[i]), y[i]).backward()
        reached = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in alone.named_parameters()}
        expected = layout.flatten(reached)
        assert torch.allclose(gradients[i], expected, atol=1e-9)
        for buffer_name, buffer in alone.named_buffers():
            assert torch.allclose(after[buffer_name][i], buffer, atol=1e-9)
    assert all(torch.equal(t, before[n]) for n, t in module.state_dict().items())


@every_model
def test_every_model_learns(name):
    module, _, _, _, x, y = clients(name, count=1, batch=10)
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    losses = []
    for _ in range(5 if name.startswith("mobilenet") else 15):
        optimizer.zero_grad()
        losses.append(cross_entropy(module(x[0]), y[0]))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_dropout_differs_by_client_and_stops_when_testing():
    torch.manual_seed(0)
    module = Mlp4(dropout=0.5).build((8,), 3)
    parameters, x = {n: p.detach() for n, p in module.named_parameters()}, torch.ones(2, 5, 8)
    run = vmap(lambda x: functional_call(module, parameters, (x,)), randomness="different")
    outputs = run(x)
    assert not torch.equal(outputs[0], outputs[1])
    module.eval()
    outputs = run(x)
    assert torch.equal(outputs[0], outputs[1])


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_does_as_pytorchs_does(training):
    ours, theirs = BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    torch.manual_seed(0)
    for norm in (ours, theirs):
        norm.train()
    for step in range(3):
        x = 2 + torch.randn(4, 3, 5, 5) * (step + 1)
        if step == 2 and not training:
            ours.eval(), theirs.eval()
        assert torch.allclose(ours(x), theirs(x), atol=1e-6)
    assert ours.num_batches_tracked == theirs.num_batches_tracked
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-5)
    assert set(ours.state_dict()) == set(theirs.state_dict())


def test_without_pytorch_the_package_names_the_extra():
    code = "import sys; sys.modules['torch'] = None; import flanders.data; import flanders.models"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra" in done.stderr
    assert "pip install 'flanders-fl[sim]'" in done.stderr


def test_data_needs_no_pytorch():
    code = "import sys; import flanders.data; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@every_model
def test_the_last_layer_gives_the_logits(name):
    module = build(name)
    vector = Layout.of(module).flatten(module)
    where = last_layer_of(tensor_sizes(module))
    linear = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)][-1]
    assert torch.equal(vector[where], torch.cat([linear.weight.flatten(), linear.bias]).detach())
    assert where.stop == vector.numel()
