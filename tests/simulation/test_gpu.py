"""What must hold on a GPU; skipped where there is none."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
import torch

from flanders.arrays import normals_like
from flanders.attacks import AgrMinMax
from flanders.cli import main
from flanders.data import Dirichlet, Iid, from_arrays
from flanders.filters import Flanders
from flanders.models import MODELS, Layout
from flanders.simulation import Simulation, Trainer, Training
from flanders.simulation.evaluation import Evaluator
from flanders.simulation.training.batches import ClientData
from flanders.state import load_state, save_state
from settings import changed, make_setting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def images(count=600, side=32, classes=5):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 3, side, side), dtype=np.float32)
    return from_arrays(x, rng.integers(0, classes, count), num_classes=classes)


def clients(data, sizes, device):
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return ClientData.of(torch.from_numpy(data.x_train).to(device), torch.from_numpy(data.y_train).to(device), rows)


@pytest.mark.parametrize(
    ("name", "batch"), [("mlp2", 16), ("mlp4", 16), ("cnn6", 16), ("mobilenet", 64), ("mobilenet-reference", 64)]
)
def test_training_on_a_gpu_equals_training_on_a_cpu(name, batch):
    # mobilenet takes one step: batch normalisation of few examples makes later ones amplify rounding a thousandfold
    data, sizes, training = images(), [40, 17, 64, 33], Training("sgd", 0.01, momentum=0.9, batch_size=batch)
    torch.manual_seed(0)
    module = MODELS.make(name).build((3, 32, 32), 5)
    model, buffers = Layout.of(module).flatten(module), {n: b.clone() for n, b in module.named_buffers()}
    expected = Trainer(module, clients(data, sizes, "cpu"), training).train(model, buffers, range(4), seed=1)
    module.cuda()
    on_gpu = {n: b.cuda() for n, b in buffers.items()}
    trainer = Trainer(module, clients(data, sizes, "cuda"), training)
    for _ in range(4):  # the later ones from recordings
        found = trainer.train(model.cuda(), on_gpu, range(4), seed=1)
        torch.testing.assert_close(
            found.updates.cpu(), expected.updates, atol=2e-3 if name.startswith("mobilenet") else 2e-4, rtol=1e-3
        )
    for n, b in expected.buffers.items():
        torch.testing.assert_close(found.buffers[n].cpu(), b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["cnn6", "mobilenet", "mobilenet-reference"])
def test_testing_on_a_gpu_equals_testing_on_a_cpu(name):
    data = images()
    torch.manual_seed(0)
    module = MODELS.make(name).build((3, 32, 32), 5)
    found = []
    for device in ("cpu", "cuda"):
        module.to(device)
        x, y = (torch.from_numpy(a).to(device) for a in (data.x_train, data.y_train))
        buffers = {n: b.clone() for n, b in module.named_buffers()}
        found.append(Evaluator(module, x, y).evaluate(Layout.of(module).flatten(module), buffers))
    assert found[1].loss == pytest.approx(found[0].loss, rel=1e-4)


def test_tf32_rounds_more_than_float32_and_is_off_again_afterwards():
    data, sizes = images(), [40, 17, 64, 33]
    module = MODELS.make("mlp2").build((3, 32, 32), 5).cuda()
    model = Layout.of(module).flatten(module)
    exact, rounded = (
        Trainer(module, clients(data, sizes, "cuda"), Training("sgd", 0.01), tf32=tf32).train(
            model, {}, range(4), 1
        )
        for tf32 in (False, True)
    )
    moved = exact.updates - model
    assert 0 < (rounded.updates - exact.updates).norm() < 0.02 * moved.norm()
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("name", ["mlp4", "cnn6", "mobilenet"])
def test_recorded_steps_give_the_same_bytes_as_steps_one_by_one(name):
    data, sizes = images(), [40, 17, 64, 33]
    module = MODELS.make(name).build((3, 32, 32), 5).cuda()
    model, buffers = Layout.of(module).flatten(module), {n: b.clone() for n, b in module.named_buffers()}
    recorded, plain = (
        Trainer(module, clients(data, sizes, "cuda"), Training(batch_size=16), graphs=graphs)
        for graphs in (True, False)
    )
    expected = plain.train(model, buffers, range(4), seed=1).updates
    for _ in range(5):
        assert torch.equal(recorded.train(model, buffers, range(4), seed=1).updates, expected)


@pytest.mark.parametrize("partition", [Iid(), Dirichlet()])
def test_a_run_on_a_gpu_repeats_and_continues_bit_for_bit(partition, tmp_path):
    setting = make_setting(
        partition=partition,
        num_clients=20,
        rounds=8,
        attack=AgrMinMax(),
        fraction=0.4,
        filter=Flanders(keep=0.6),
        device="cuda",
    )
    whole, again, first, second = (Simulation(setting) for _ in range(4))
    expected = list(whole.run())
    assert [r.loss for r in again.run()] == [r.loss for r in expected]
    rounds = first.run()
    for _ in range(4):
        next(rounds)
    save_state(tmp_path / "state.npz", first.state_dict())
    second.load_state_dict(load_state(tmp_path / "state.npz", like=second.like))
    assert [r.loss for r in second.run()] == [r.loss for r in expected[4:]]
    assert torch.equal(whole.model, second.model)


def test_a_cpu_and_a_gpu_make_the_same_decisions():
    setting = make_setting(partition=Iid(), num_clients=10, rounds=4, attack=AgrMinMax(), fraction=0.3,
                      filter=Flanders(keep=0.7), device="cpu")  # fmt: skip
    for a, b in zip(Simulation(setting).run(), Simulation(changed(setting, device="cuda")).run(), strict=True):
        np.testing.assert_array_equal(a.kept, b.kept)
        assert a.accuracy == pytest.approx(b.accuracy, abs=0.02)


def test_runs_that_share_a_gpu_end_with_the_same_bytes_as_runs_on_their_own(tmp_path):
    spec = tmp_path / "grid.toml"
    spec.write_text(
        "[federation]\nclients = 20\nrounds = 6\nseed = [0, 1, 2, 3]\n"
        '[attack]\nname = "agr-min-max"\nfraction = 0.4\n[filter]\nname = "flanders"\nkeep = "m-b"\n'
    )
    found = []
    for jobs in (1, 4):
        out = tmp_path / f"{jobs}.sqlite"
        assert main(["run", str(spec), "--device", "cuda", "--jobs", str(jobs), "--out", str(out)]) == 0
        with sqlite3.connect(out) as results:
            found.append(results.execute("SELECT run, number, loss FROM round ORDER BY run, number").fetchall())
    assert found[0] == found[1]
    assert len(found[0]) == 24


def test_noise_drawn_on_a_gpu_is_normal_and_follows_from_the_seed():
    own = torch.zeros((40, 20_000), device="cuda")
    first, again = (normals_like(own, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, normals_like(own, np.random.default_rng(8)))
    assert (first.dtype, first.shape, first.device) == (own.dtype, own.shape, own.device)
    assert abs(float(first.mean())) < 0.01
    assert abs(float(first.std()) - 1) < 0.01
