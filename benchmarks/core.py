"""Measures the speed and the memory of the aggregators and of the filter `Flanders`, compared with other libraries.

    python benchmarks/core.py [--json FILE] [--device cpu|cuda] [--clients 100] [--parameters 1000000]
                              [--repeats 5] [--only NAME ...] [--check]

How it measures
---------------
- Everything runs in one thread. On the CPU, times are CPU times of the process, since other programs on the machine
  disturb them least. On an accelerator, times are wall-clock times between two synchronisations.
- Each aggregator is compared with one peer. The peers are ByzFL (NumPy and PyTorch), Flower and ByzPy, as far as
  they are installed. A short trial finds the fastest of them.
- Both are called once to warm up. Then they are called in turns: ours, peer, ours, peer, and so on. Each pair of
  calls gives a ratio of times. The result is the median of these ratios.
- Only the aggregation is timed. For example, Flower's strategies get replies that already contain plain arrays.
- The operating system takes CPU time to provide new memory. This time counts, since users pay for it, too. Peers
  need most of it. On a virtual machine it varies. `user_ratio` is the ratio without the time of the operating
  system.
- Extra memory is the largest resident set during the call, minus the resident set before the call. On an
  accelerator it is the allocated memory. The result of the call counts. On the CPU, each number comes from a fresh
  process.
- A row without any installed peer still has our own numbers.
- `ratio` is the time of the peer divided by our time, so more is better. A row for which this is different says so.
"""

# ruff: noqa: E402 (the number of threads has to be set before NumPy is imported)
from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flanders import aggregators
from flanders.arrays import Array, to_numpy
from flanders.filters import Everything, Filter, Flanders, Guard, Look, Sample
from flanders.linalg.products import inner_products
from flanders.round import Round

Call = Callable[[], Any]
Peers = dict[str, Callable[["Setting"], Call]]
SAMPLE, ITERATIONS = 500, 100
"""How many parameters the paper's filter looks at, and how many iterations its published code makes."""
PLAIN_BLOCK = 2**26
"""How many numbers the plain product on an accelerator multiplies at a time. On an H200 more were not faster."""
NNM_SMALL = 50_000
"""The most parameters for ByzFL's nearest-neighbour mixing (NNM). With more, it needs too much memory."""


@dataclass(frozen=True)
class Setting:
    """The data of a run: models near the global model. A fifth of them are malicious and five times as far away."""

    clients: int
    parameters: int
    device: str

    @property
    def malicious(self) -> int:
        """The number of malicious clients."""
        return self.clients // 5

    def draw(self, seed: int) -> Round:
        """Return a round of float32 models."""
        shape = (self.clients, self.parameters)
        if self.device == "cpu":
            rng = np.random.default_rng(seed)
            updates: Array = rng.standard_normal(shape, dtype=np.float32)
            model: Array = rng.standard_normal(self.parameters, dtype=np.float32)
        else:
            torch = importlib.import_module("torch")
            generator = torch.Generator(self.device).manual_seed(seed)
            updates = torch.randn(shape, device=self.device, generator=generator)
            model = torch.randn(self.parameters, device=self.device, generator=generator)
        updates *= 0.01
        updates[: self.malicious] *= 5
        updates += model
        return Round(updates, global_model=model)

    @functools.cached_property
    def round_(self) -> Round:
        """The round that is aggregated."""
        return self.draw(0)


@dataclass(frozen=True)
class Case:
    """One row of the table: our function, the peers that it is compared with, and the targets."""

    name: str
    ours: Callable[[Setting], Call]
    peers: Peers = field(default_factory=dict)
    target: float | None = None
    """The ratio that should be reached on the CPU. None if there is no target."""
    on_gpu: float | None = None
    """The ratio that should be reached on an accelerator. None if there is no target."""
    by_user: bool = False
    """Whether the ratio without the time of the operating system should reach the target, too."""
    at_most: bool = False
    """If true, the ratio is ours / peer and should be at most `target`. If false, it is peer / ours and should be
    at least `target`."""
    memory_target: float | None = None
    """The extra memory should be below this share of the size of the matrix of updates."""
    note: str = ""


@dataclass(frozen=True)
class Row:
    """What was measured in one row. Times are in seconds, memory in MB (1e6 bytes)."""

    name: str
    clients: int
    parameters: int
    device: str
    ours: float
    peer: float | None
    peer_name: str
    ratio: float | None
    user_ratio: float | None
    ratio_is: str
    target: str
    met: bool | None
    extra_memory: float | None
    extra_memory_share: float | None
    peer_extra_memory: float | None
    memory_target: str
    memory_met: bool | None
    unit: str
    note: str


def ours(make: Callable[[int], Any]) -> Callable[[Setting], Call]:
    """Return a function that prepares a call of our aggregator. `make` gets the number of malicious clients."""

    def build(setting: Setting) -> Call:
        built, round_ = make(setting.malicious), setting.round_
        return lambda: built(round_.updates, global_model=round_.global_model, rng=np.random.default_rng(0))

    return build


def byzfl(name: str, module: str = "aggregators", **options: Any) -> Peers:
    """Return functions that prepare calls of ByzFL: on NumPy arrays, and on PyTorch tensors.

    An option with the value "f" gets the number of malicious clients.
    """

    def build(setting: Setting, library: str) -> Call:
        if "byzfl" not in sys.modules:  # ByzFL's __init__ imports torchvision, which the aggregators do not need
            found = importlib.util.find_spec("byzfl")
            if found is None:
                raise ImportError("byzfl is not installed")
            package = types.ModuleType("byzfl")
            package.__path__ = list(found.submodule_search_locations or ())
            sys.modules["byzfl"] = package
        kind = getattr(importlib.import_module(f"byzfl.aggregators.{module}"), name)
        arguments = {k: setting.malicious if v == "f" else v for k, v in options.items()}
        built, data = kind(**arguments), as_library(setting, library)
        return lambda: built(data)

    return {f"ByzFL {library}": functools.partial(build, library=library) for library in ("numpy", "torch")}


def flower(name: str, **options: Any) -> Peers:
    """Return a function that prepares a call of a Flower strategy's aggregation, on replies with plain arrays."""

    def build(setting: Setting) -> Call:
        if setting.device != "cpu":
            raise ImportError("Flower aggregates on the CPU")
        strategy = getattr(importlib.import_module("flwr.serverapp.strategy"), name)
        arguments = {k: v(setting) if callable(v) else v for k, v in options.items()}
        built = strategy(**arguments, train_metrics_aggr_fn=lambda *_: None)
        built._check_and_log_replies = lambda replies, is_train: (replies, [])
        rows = list(setting.round_.updates)
        return lambda: built.aggregate_train(1, [Reply(row) for row in rows])

    return {"Flower": build}


class Records(dict[str, Any]):
    """A replacement for Flower's ArrayRecord, without its serialisation."""

    def to_numpy_ndarrays(self, *, keep_input: bool = True) -> list[Any]:
        """Return the arrays."""
        return [array.numpy() for array in self.values()]


class Reply:
    """A replacement for Flower's Message and RecordDict."""

    def __init__(self, row: Array) -> None:
        array = types.SimpleNamespace(numpy=lambda: row)
        self.content = self
        self.array_records = {"arrays": Records(layer=array)}
        self.metric_records = {"metrics": {"num-examples": 1.0}}

    def __getitem__(self, key: str) -> Records:
        return self.array_records[key]


def byzpy_nnm(setting: Setting) -> Call:
    """Prepare a call of ByzPy's nearest-neighbour mixing."""
    module = importlib.import_module("byzpy.pre_aggregators.nnm")
    built, data = module.NearestNeighborMixing(f=setting.malicious), list(as_library(setting, "torch"))
    return lambda: built.pre_aggregate(data)


def byzfl_nnm() -> Peers:
    """Return functions that prepare calls of ByzFL's nearest-neighbour mixing, if the model is small enough.

    ByzFL forms m (m - f) d numbers, for m clients, f of them malicious, and d parameters.
    """

    def build(setting: Setting, of: Callable[[Setting], Call]) -> Call:
        if setting.parameters > NNM_SMALL:
            raise ImportError("ByzFL's NNM needs (m - f) times the matrix in memory")
        return of(setting)

    known = byzfl("NNM", "preaggregators", f="f")
    return {name: functools.partial(build, of=of) for name, of in known.items()}


def as_library(setting: Setting, library: str) -> Array:
    """Return the updates as a NumPy array or a PyTorch tensor, on the device of the setting."""
    if library == "torch":
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        return torch.as_tensor(setting.round_.updates)
    if setting.device != "cpu":
        raise ImportError("NumPy does not run on an accelerator")
    return setting.round_.updates


def flanders(setting: Setting, look: Look) -> Flanders:
    """Return the paper's filter, which is told the number of malicious clients."""
    return Flanders(keep=setting.clients - setting.malicious, window=2, look=look)


def after_three_rounds(setting: Setting, filter_: Filter[Any]) -> tuple[Any, Round]:
    """Return the memory of a filter after three rounds, and the fourth round."""
    state = filter_.init(np.random.default_rng(0))
    for t in range(3):
        round_ = setting.draw(t)
        scores = filter_.score(state, round_)
        kept = np.arange(setting.clients) if scores is None else filter_.select(scores)
        state = filter_.amend(state, round_, kept, round_.global_model, scores)
    return state, setting.draw(3)


def filter_step(setting: Setting, make: Callable[[Setting], Filter[Any]]) -> Call:
    """Prepare a step of a filter: the round after three others is scored and remembered."""
    filter_ = make(setting)
    state, round_ = after_three_rounds(setting, filter_)

    def step() -> Any:
        scores = filter_.score(state, round_)
        assert scores is not None
        return filter_.amend(state, round_, filter_.select(scores), round_.global_model, scores)

    return step


def flanders_product(setting: Setting) -> Call:
    """Prepare the one large matrix product of a step.

    The updates of the round are multiplied with each other and with the updates of the last l rounds, in float64.
    """
    state, round_ = after_three_rounds(setting, flanders(setting, Everything()))
    snapshots = state.snapshots
    vectors = [v for s in snapshots for v in (s.rows, s.global_model[None, :])]
    pieces = [*vectors, round_.updates, round_.global_model[None, :] * 0]
    return gram_product(setting, pieces, round_.global_model, len(vectors) - 1)


def gram_product(setting: Setting, pieces: list[Array], center: Array, tail: int) -> Call:
    """Prepare the product of `pieces[tail:]` with all pieces, in float64, after the center was subtracted.

    On the CPU this is our own function. On an accelerator it is PyTorch's product of large blocks: our own function
    has kernels of its own there, and a yardstick should not change with them.
    """
    if setting.device == "cpu":
        return lambda: inner_products(pieces, center, tail=tail)
    torch = importlib.import_module("torch")
    rows, new = sum(len(piece) for piece in pieces), sum(len(piece) for piece in pieces[:tail])
    width = PLAIN_BLOCK // rows

    def product() -> Any:
        total: Any = 0.0
        for start in range(0, setting.parameters, width):
            columns = slice(start, start + width)
            block = torch.cat([piece[:, columns] for piece in pieces]).double() - center[columns].double()
            total = total + block[new:] @ block.T
        return total.cpu()

    return product


def guard_product(setting: Setting) -> Call:
    """Prepare the large product of a step of the default filter, in float64.

    The updates of the round are multiplied with each other and with the remembered marks of the clients.
    """
    state, round_ = after_three_rounds(setting, Guard())
    pieces = [state.signatures.marks, round_.updates]
    return gram_product(setting, pieces, round_.global_model, 1)


def naive_step(setting: Setting) -> Call:
    """Prepare one step of the published code: an (m, n, T) tensor, 100 iterations, n x n inverses.

    There are m clients, n sampled parameters and T rounds.
    """
    columns = np.sort(np.random.default_rng(0).choice(setting.parameters, min(SAMPLE, setting.parameters)))
    last, round_ = to_numpy(setting.draw(2).updates[:, columns]).astype(np.float64), setting.round_
    keep = setting.clients - setting.malicious

    def step() -> Any:
        sent = to_numpy(round_.updates[:, columns]).astype(np.float64)
        tensor = np.stack([last, sent], axis=2)
        scores = np.linalg.norm(sent - naive_forecast(tensor[:, :, :-1], np.random.default_rng(0)), axis=1)
        flagged = np.argsort(scores)[keep:]
        tensor[flagged, :, -1] = to_numpy(round_.global_model[columns])
        return tensor

    return step


def naive_forecast(x: Any, rng: np.random.Generator) -> Any:
    """Return the forecast of the next (m, n) matrix from an (m, n, T) tensor, as the published code computes it."""
    m, n, rounds = x.shape
    scaled = (x - x.min()) / x.max()
    a, b = rng.standard_normal((m, m)), rng.standard_normal((n, n))
    for _ in range(ITERATIONS):
        pairs = [(scaled[:, :, t], scaled[:, :, t - 1]) for t in range(rounds)]
        left = sum(new @ b @ old.T for new, old in pairs)
        right = sum(old @ b.T @ b @ old.T for _, old in pairs)
        a = left @ np.linalg.inv(right + np.eye(m))
        left = sum(new.T @ a @ old for new, old in pairs)
        right = sum(old.T @ a.T @ a @ old for _, old in pairs)
        b = left @ np.linalg.inv(right + np.eye(n))
    return a @ x[:, :, -1] @ b.T


def malicious(setting: Setting) -> int:
    return setting.malicious


def honest(setting: Setting) -> int:
    return setting.clients - setting.malicious


PRODUCT, NAIVE = "its Gram product", "published algorithm, NumPy"
CASES = (
    Case(
        "fedavg",
        ours(lambda f: aggregators.FedAvg()),
        byzfl("Average") | flower("FedAvg"),
        1,
        memory_target=0.1,
        on_gpu=1.5,
    ),
    Case(
        "median",
        ours(lambda f: aggregators.Median()),
        byzfl("Median") | flower("FedMedian"),
        4,
        memory_target=0.1,
        on_gpu=1.5,
    ),
    Case(
        "trimmed-mean",
        ours(lambda f: aggregators.TrimmedMean(f)),
        byzfl("TrMean", f="f") | flower("FedTrimmedAvg", beta=0.2),
        1,
        memory_target=0.1,
        on_gpu=1,
    ),
    Case("mean-around-median", ours(lambda f: aggregators.MeanAroundMedian(f)), byzfl("Meamed", f="f"), on_gpu=1),
    Case(
        "krum",
        ours(lambda f: aggregators.Krum(f)),
        byzfl("Krum", f="f") | flower("Krum", num_malicious_nodes=malicious),
        on_gpu=1.5,
    ),
    Case(
        "multi-krum",
        ours(lambda f: aggregators.MultiKrum(f)),
        byzfl("MultiKrum", f="f") | flower("MultiKrum", num_malicious_nodes=malicious, num_nodes_to_select=honest),
        1.5,
        on_gpu=1.5,
    ),
    Case("bulyan", ours(lambda f: aggregators.Bulyan(f)), flower("Bulyan", num_malicious_nodes=malicious), 5),
    Case(
        "geometric-median",
        ours(lambda f: aggregators.GeometricMedian()),
        byzfl("GeometricMedian"),
        2,
        note="ours until it converges, ByzFL for its default of 3 steps",
        on_gpu=1.5,
    ),
    Case(
        "geometric-median, 3 steps",
        ours(lambda f: aggregators.GeometricMedian(iterations=3)),
        byzfl("GeometricMedian"),
        1.5,
        by_user=True,
        note="3 Weiszfeld steps each",
        on_gpu=1,
    ),
    Case(
        "centered-clipping",
        ours(lambda f: aggregators.CenteredClipping(iterations=3)),
        byzfl("CenteredClipping", L=3),
        1.5,
        by_user=True,
        note="3 steps each",
        on_gpu=1,
    ),
    Case("dnc", ours(lambda f: aggregators.DnC(f)), note="5 samples of 500 parameters"),
    Case(
        "nnm",
        ours(lambda f: aggregators.Nnm(f)),
        {"ByzPy torch": byzpy_nnm} | byzfl_nnm(),
        2,
        note=f"ByzFL's forms m (m - f) d numbers: it joins at up to {NNM_SMALL} parameters, where ByzPy is missing",
        on_gpu=1,
    ),
    Case(
        "flanders step, all parameters",
        functools.partial(filter_step, make=functools.partial(flanders, look=Everything())),
        {PRODUCT: flanders_product},
        2,
        at_most=True,
        note="score, select and amend with l = 2",
        on_gpu=1.5,
    ),
    Case(
        "guard step",
        functools.partial(filter_step, make=lambda setting: Guard()),
        {PRODUCT: guard_product},
        on_gpu=1.5,
        at_most=True,
        note="score, select and amend; the product of the updates with each other and with the marks",
    ),
    Case(
        "flanders step, paper's setting",
        functools.partial(filter_step, make=functools.partial(flanders, look=Sample(SAMPLE))),
        {NAIVE: naive_step},
        50,
        note=f"{SAMPLE} sampled parameters, l = 2; the published algorithm with N = {ITERATIONS}",
    ),
)


def seconds(call: Call, device: str) -> tuple[float, float]:
    """Return the time of one call, and the part of it outside the operating system.

    On the CPU this is CPU time. On an accelerator it is wall-clock time, and both numbers are the same.
    """
    if device == "cpu":
        start, user = time.process_time(), os.times().user
        call()
        return time.process_time() - start, os.times().user - user
    torch = importlib.import_module("torch")
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    taken = time.perf_counter() - start
    return taken, taken


def fastest_peer(case: Case, setting: Setting) -> tuple[str, Call | None]:
    """Return the name and the call of the peer that is fastest in a short trial. The call may be None."""
    best: tuple[float, str, Call] | None = None
    for name, build in case.peers.items():
        try:
            call = build(setting)
            taken = seconds(call, setting.device)[0]
            if best is None or taken < 2 * best[0]:  # the first call only warms up, so time a second one
                taken = min(taken, seconds(call, setting.device)[0])
        except (ImportError, MemoryError, RuntimeError):  # the peer is not installed, or needs too much memory
            continue
        if best is None or taken < best[0]:
            best = (taken, name, call)
    return ("no peer here", None) if best is None else (best[1], best[2])


def median_ratio(
    times: list[tuple[float, float]], peer_times: list[tuple[float, float]], part: int, at_most: bool
) -> float | None:
    """Return the median ratio of the pairs of calls.

    `part` is 0 for the whole time, and 1 for the time outside the operating system.
    """
    pairs = [(a[part], b[part]) for a, b in zip(times, peer_times, strict=False) if a[part] > 0 and b[part] > 0]
    return statistics.median(a / b if at_most else b / a for a, b in pairs) if pairs else None


def measure(case: Case, setting: Setting, repeats: int) -> Row:
    """Return the row of a case: time our call and the peer's call in turns, then measure the memory of both."""
    if case.name == "nnm" and importlib.util.find_spec("byzpy") is None:
        setting = replace(setting, parameters=min(setting.parameters, NNM_SMALL))
    call = case.ours(setting)
    peer_name, peer = fastest_peer(case, setting)
    call()
    times, peer_times = [], []
    for _ in range(repeats):
        times.append(seconds(call, setting.device))
        if peer is not None:
            peer_times.append(seconds(peer, setting.device))
    ratio, user_ratio = (median_ratio(times, peer_times, part, case.at_most) for part in (0, 1))
    target = case.target if setting.device == "cpu" else case.on_gpu
    met = None
    if target is not None and ratio is not None:
        met = ratio <= target if case.at_most else ratio >= target
        met = met and (not case.by_user or (user_ratio or 0.0) >= target)
    matrix = setting.clients * setting.parameters * 4 / 1e6
    memory, peers_memory = (
        None if each is None else extra_memory(case, setting, side, each)
        for each, side in ((call, "ours"), (peer, peer_name))
    )
    share = None if memory is None else memory / matrix
    sign = "<=" if case.at_most else ">="
    return Row(
        name=case.name,
        clients=setting.clients,
        parameters=setting.parameters,
        device=setting.device,
        ours=statistics.median(total for total, _ in times),
        peer=statistics.median(total for total, _ in peer_times) if peer_times else None,
        peer_name=peer_name,
        ratio=ratio,
        user_ratio=user_ratio,
        ratio_is="ours / peer" if case.at_most else "peer / ours",
        target="" if target is None else f"{sign} {target:g}",
        met=met,
        extra_memory=memory,
        extra_memory_share=share,
        peer_extra_memory=peers_memory,
        memory_target="" if case.memory_target is None else f"< {case.memory_target:.0%} of the matrix",
        memory_met=None if case.memory_target is None or share is None else share < case.memory_target,
        unit="s of CPU time" if setting.device == "cpu" else "s of wall clock",
        note=case.note,
    )


def extra_memory(case: Case, setting: Setting, side: str, call: Call) -> float | None:
    """Return the extra memory of one call, in MB. None if it cannot be measured.

    `side` is "ours" or the name of a peer. On the CPU, the call is made in a fresh process.
    """
    if setting.device != "cpu":
        torch = importlib.import_module("torch")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return float(torch.cuda.max_memory_allocated() - before) / 1e6
    size = f"{setting.clients},{setting.parameters}"
    command = [sys.executable, __file__, "--memory", case.name, side, size]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"extra MB: ([\d.]+)", done.stdout)
    return float(found[1]) if found else None


def print_extra_memory(name: str, side: str, size: str) -> None:
    """Measure the extra memory of one call on the CPU in this process, and print it for `extra_memory`."""
    m, d = size.split(",")
    setting = Setting(int(m), int(d), "cpu")
    case = next(c for c in CASES if c.name == name)
    build = case.ours if side == "ours" else case.peers[side]
    build(replace(setting, parameters=1000))()  # a small call first, since the first call imports and compiles
    call = build(setting)
    Path("/proc/self/clear_refs").write_text("5")  # resets the largest resident set (VmHWM)
    before = resident("VmRSS")
    call()
    peak = resident("VmHWM")
    print(f"extra MB: {max(0, peak - before) / 1e6:.3f}")


def resident(name: str) -> int:
    """Return a value of /proc/self/status in bytes: VmRSS is the resident set, VmHWM its largest size so far."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 0 if found is None else 1024 * int(found[1])


def table(measured: Iterator[Row], parameters: int) -> list[Row]:
    """Print each row as soon as it is measured, and return all rows."""
    heads = ("name", "ours s", "peer s", "ratio", "user", "target", "", "new MB", "of matrix", "peer's MB", "peer")
    layout = "{:<31} {:>8} {:>8} {:>7} {:>7} {:>7} {:<6} {:>8} {:>9} {:>9}  {}"
    print(layout.format(*heads))

    def show(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    done = []
    for row in measured:
        verdict = {None: "", True: "met", False: "missed"}[row.met]
        size = f" (both at d = {row.parameters})" if row.parameters != parameters else ""
        print(
            layout.format(
                row.name,
                show(row.ours, ".4f"),
                show(row.peer, ".4f"),
                show(row.ratio, ".2f"),
                show(row.user_ratio, ".2f"),
                row.target,
                verdict,
                show(row.extra_memory, ".0f"),
                show(row.extra_memory_share, ".1%"),
                show(row.peer_extra_memory, ".0f"),
                row.peer_name + size,
            ),
            flush=True,
        )
        done.append(row)
    return done


def machine(device: str) -> str:
    """Return a description of the machine and of the installed versions."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = model[1] if model else processor
    if device != "cpu":
        processor = importlib.import_module("torch").cuda.get_device_name()
    versions = [f"Python {platform.python_version()}", f"NumPy {np.__version__}"]
    for name in ("torch", "byzfl", "flwr", "byzpy"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            here = name in sys.modules or importlib.util.find_spec(name) is not None
            versions.append(name if here else f"{name} not installed")
    return f"{processor}; {platform.system()}; {', '.join(versions)}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5, help="pairs of calls in each row")
    parser.add_argument(
        "--only", nargs="+", choices=[c.name for c in CASES], metavar="NAME", help="only these rows"
    )
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.memory:
        print_extra_memory(*chosen.memory)
        return 0
    m, d, device = chosen.clients, chosen.parameters, chosen.device
    print(
        f"{m} clients, {m // 5} malicious, {d} parameters, float32, one thread, {chosen.repeats} pairs in each row"
    )
    cases = [c for c in CASES if not chosen.only or c.name in chosen.only]
    done = table((measure(case, Setting(m, d, device), chosen.repeats) for case in cases), d)
    print(f"\n{machine(device)}")
    missed = []
    for row in done:
        for target, met in ((row.target, row.met), (row.memory_target, row.memory_met)):
            if target:
                kind = "ratio" if target == row.target else "extra memory"
                word = {None: "not measured", True: "met", False: "missed"}[met]
                print(f"{row.name}: {kind} {target}: {word}")
                missed += [row.name] if met is False else []
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in done], indent=1) + "\n")
    return 1 if chosen.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
