"""Measures the speed and the memory of the simulator, compared with the same work in Flower's simulation runtime.

    python benchmarks/simulation.py [--json FILE] [--device cpu|cuda] [--data-dir DIR] [--rounds 10] [--repeats 2]
                                    [--only NAME ...] [--no-flower]

How it measures
---------------
- The comparison with Flower uses the MNIST setting of the FLANDERS paper. There are 100 clients with 480 examples
  each. They train a model with 784-128-10 units for one epoch, with Adam and batches of 32. The server averages the
  models and tests the result on 10,000 images after each round.
- The data are MNIST, if `--data-dir` or `FLANDERS_DATA` has it. Otherwise they are random data of the same shape,
  which take as long.
- Flower runs the same work as a Flower app, which this script writes into a temporary folder. Ray has one actor for
  each core, and each actor loads the data once. The time of a round is the time between two tests of the global
  model. The first round does not count, since Ray starts in it.
- Both run in turns: ours, Flower, ours, Flower, and so on. Each turn has fresh processes. The results are medians
  over the rounds of all turns. So other programs on the machine disturb both in the same way.
- Peak memory is the largest resident set of the process, including Python and PyTorch. On a GPU, the memory
  allocated there is reported, too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flanders.attacks import AgrMinMax
from flanders.checks import InputError
from flanders.data import (
    Cifar10,
    Cifar100,
    Dataset,
    Digits,
    Dirichlet,
    DirichletEqual,
    Iid,
    Mnist,
    Synthetic,
    from_arrays,
)
from flanders.filters import DistanceToGlobal, Flanders, KeepAll, Sample
from flanders.models import Cnn6, Logistic, Mlp2, MobileNet
from flanders.published.attacks import AgrMinMaxReference
from flanders.simulation import Data, Federation, Options, Setting, Simulation, Threat, Training

Row = dict[str, Any]
PAPER = Training(validation_fraction=0.2)
SGD = Training("sgd", 0.01, momentum=0.9, validation_fraction=0.2)
EQUAL = DirichletEqual()
MNIST = Setting(data=Data(Mnist(), EQUAL), model=Mlp2(), training=PAPER, filter=KeepAll())
LOUD, QUIET = Threat(AgrMinMaxReference(), fraction=0.8), Threat(AgrMinMax(), fraction=0.2)
ATTACKED = replace(MNIST, threat=LOUD, filter=Flanders(keep=0.2))
THOUSAND = Setting(data=Data(Digits(), Iid()), federation=Federation(1000), threat=QUIET, filter=KeepAll())
MANY = Data(Synthetic(num_features=100, num_samples=200_000), Iid())
TEN_THOUSAND = Setting(data=MANY, model=Logistic(), federation=Federation(10_000), filter=KeepAll())
SAMPLED = Flanders(keep=0.2, look=Sample(500))
SETTINGS: dict[str, tuple[Setting, str]] = {
    "mnist": (MNIST, "100 clients x 480, mlp2, FedAvg"),
    "mnist-attacked": (ATTACKED, "the same under AGR-MM at r = 0.8 with FLANDERS"),
    "mnist-uneven": (replace(ATTACKED, data=Data(Mnist(), Dirichlet())), "the same with Dirichlet sizes"),
    "digits-1000": (
        replace(THOUSAND, filter=DistanceToGlobal(keep=0.8)),
        "1,000 clients on digits, all selected, AGR-MM, distance to global",
    ),
    "digits-1000-flanders": (
        replace(THOUSAND, federation=Federation(1000, 100), filter=Flanders(keep=0.8)),
        "1,000 clients on digits, 100 a round, AGR-MM, FLANDERS",
    ),
    "synthetic-10000": (
        replace(TEN_THOUSAND, filter=DistanceToGlobal(keep=0.8)),
        "10,000 clients x 20, logistic d = 1,010, all selected, distance to global",
    ),
    "synthetic-10000-flanders": (
        replace(TEN_THOUSAND, federation=Federation(10_000, 100), filter=Flanders(keep=0.8), threat=QUIET),
        "10,000 clients x 20, 100 a round, AGR-MM, FLANDERS",
    ),
}
ON_GPU: dict[str, tuple[Setting, str]] = {
    "cifar10-cnn6": (
        replace(ATTACKED, data=Data(Cifar10(), EQUAL), model=Cnn6(), training=SGD),
        "100 clients x 400, cnn6 (62,006), AGR-MM, FLANDERS",
    ),
    "cifar100-mobilenet": (
        replace(ATTACKED, data=Data(Cifar100(), EQUAL), model=MobileNet(), training=SGD, filter=SAMPLED),
        "100 clients, mobilenet (3,315,428), AGR-MM, FLANDERS on 500 parameters",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=10, help="rounds in each turn")
    parser.add_argument("--repeats", type=int, default=2, help="turns of the simulator and of Flower each")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*SETTINGS, *ON_GPU])
    parser.add_argument("--no-flower", action="store_true", help="leave Flower out")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measure(options.worker, options)))
        return
    known = {**SETTINGS, **ON_GPU} if options.device == "cuda" else SETTINGS
    rows = []
    for name in options.only or known:
        flower = name == "mnist" and options.device == "cpu" and not options.no_flower
        rows.append(compare(name, options, flower))
        show(rows[-1])
    if options.json:
        machine = {"machine": platform.platform(), "cores": os.cpu_count(), "torch": torch.__version__}
        options.json.write_text(json.dumps({**machine, "device": options.device, "rows": rows}, indent=1))


def compare(name: str, options: argparse.Namespace, flower: bool) -> Row:
    """Return the row of a setting. If `flower` is true, measure the simulator and Flower in turns."""
    ours: list[Row] = []
    theirs: list[float] = []
    missing = (
        "" if importlib.util.find_spec("flwr") and importlib.util.find_spec("ray") else "flwr or ray is missing"
    )
    for _ in range(options.repeats if flower else 1):
        ours.append(in_fresh_process(name, options))
        if flower and not missing:
            theirs += flower_rounds(options)
    seconds = [second for row in ours for second in row["seconds"]]
    row: Row = {
        "name": name,
        "what": {**SETTINGS, **ON_GPU}[name][1],
        "data": ours[0]["data"],
        "seconds_a_round": statistics.median(seconds),
        "total": sum(ours[0]["seconds"]) + ours[0]["first"],
        "rounds": len(ours[0]["seconds"]) + 1,
        "first_round": ours[0]["first"],
        "phases": ours[0]["phases"],
        "accuracy": ours[0]["accuracy"],
        "peak_mb": max(row["peak_mb"] for row in ours),
        "gpu_mb": ours[0]["gpu_mb"],
        "flower_missing": missing if flower else "",
    }
    if theirs:
        row["flower_seconds_a_round"] = statistics.median(theirs)
        row["ratio"] = row["flower_seconds_a_round"] / row["seconds_a_round"]
    return row


def show(row: Row) -> None:
    """Print one row of the table."""
    flower = f"; Flower takes {row['ratio']:.1f} times as long" if "ratio" in row else ""
    phases = " ".join(f"{phase} {1000 * spent:.1f}" for phase, spent in row["phases"].items())
    first = f"{row['first_round']:.2f} s"
    memory = f"{row['peak_mb']:.0f} MB" + (f" + {row['gpu_mb']:.0f} MB on the GPU" if row["gpu_mb"] else "")
    print(f"{row['name']}: {row['what']} ({row['data']})")
    print(f"    {1000 * row['seconds_a_round']:.1f} ms a round, the first {first}; {memory}{flower}")
    print(f"    ms by phase: {phases}")
    print(f"    {row['total']:.2f} s for {row['rounds']} rounds, accuracy {row['accuracy']:.3f}", flush=True)


def in_fresh_process(name: str, options: argparse.Namespace) -> Row:
    """Measure a setting in a fresh process, so that earlier settings do not add to its memory."""
    command = [
        sys.executable,
        __file__,
        "--worker",
        name,
        "--device",
        options.device,
        "--rounds",
        str(options.rounds),
    ]
    command += ["--data-dir", str(options.data_dir)] if options.data_dir else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(name: str, options: argparse.Namespace) -> Row:
    """Measure a setting in this process."""
    chosen = {**SETTINGS, **ON_GPU}[name][0]
    federation = replace(chosen.federation, rounds=options.rounds + 1)
    setting = replace(chosen, federation=federation, run=Options(device=options.device))
    data, which = load(setting, options.data_dir)
    simulation = Simulation(setting, data)
    seconds, phases, accuracy = [], [], 0.0
    for record in simulation.run():
        seconds.append(sum(record.seconds.values()))
        phases.append(record.seconds)
        accuracy = record.accuracy
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "data": which,
        "first": seconds[0],
        "seconds": seconds[1:],
        "phases": {phase: statistics.median(p[phase] for p in phases[1:]) for phase in phases[0]},
        "accuracy": accuracy,
        "peak_mb": kilobytes / (2**10 if sys.platform != "darwin" else 2**20),
        "gpu_mb": torch.cuda.max_memory_allocated() / 2**20 if options.device == "cuda" else 0,
    }


def load(setting: Setting, data_dir: Path | None) -> tuple[Dataset, str]:
    """Return the dataset of a setting, and its name. If its files are missing, return random data of its shape."""
    try:
        data = setting.data.dataset.load(data_dir)
        return data, data.name
    except (InputError, ImportError):
        shape, classes = ((1, 28, 28), 10) if isinstance(setting.data.dataset, Mnist) else ((3, 32, 32), 100)
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((classes, *shape), dtype=np.float32)

        def drawn(count: int) -> tuple[Any, Any]:
            y = rng.integers(0, classes, count)
            return centres[y] + 2 * rng.standard_normal((count, *shape), dtype=np.float32), y

        return from_arrays(*drawn(60_000), *drawn(10_000), num_classes=classes), "random data of its shape"


def flower_rounds(options: argparse.Namespace) -> list[float]:
    """Run the MNIST setting in Flower's simulation runtime. Return the seconds of each round except the first."""
    with tempfile.TemporaryDirectory(prefix="flanders-flower-") as folder, super_link(Path(folder)) as environment:
        root = Path(folder)
        write_data(root, options.data_dir)
        app = write_app(root)
        out = root / "rounds.json"
        cores = os.cpu_count() or 1
        federation = f"num-supernodes=100 client-resources-num-cpus=1 init-args-num-cpus={cores}"
        config = f"rounds={options.rounds + 1} folder='{root}' out='{out}'"
        command = [
            tool("flwr"),
            "run",
            str(app),
            "bench",
            "--federation-config",
            federation,
            "-c",
            config,
            "--stream",
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if not out.exists():
            sys.exit(f"Flower's run failed:\n{done.stdout}\n{done.stderr}")
        times = json.loads(out.read_text())
    return [float(second) for second in np.diff(times)[1:]]


@contextmanager
def super_link(root: Path) -> Iterator[dict[str, str]]:
    """Run a Flower server (SuperLink) with the name `bench`. Yield the environment of commands that use it."""
    switches = ("FLWR_DISABLE_UPDATE_CHECK", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION")
    environment = {**os.environ, "FLWR_HOME": str(root / "home"), **dict.fromkeys(switches, "1")}
    environment |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    (root / "home").mkdir()
    control, http = free_port(), free_port()
    address = f'address = "127.0.0.1:{http}"\ninsecure = true\n'
    (root / "home" / "config.toml").write_text(f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\n{address}')
    command = [tool("flower-superlink"), "--insecure", "--simulation", "--isolation", "subprocess"]
    command += ["--control-api-address", f"127.0.0.1:{control}", "--host", "127.0.0.1", "--port", str(http)]
    command += ["--disable-runtime-dependency-installation"]
    with (root / "superlink.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(http, process)
            yield environment
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process listens at the port, at most a minute."""
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"flower-superlink ended with exit code {process.returncode} before it could be used.")
        with socket.socket() as probe:
            probe.settimeout(0.1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit("flower-superlink did not start within a minute.")


def free_port() -> int:
    """Return a port at which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def tool(name: str) -> str:
    """Return the path of a command that is installed beside this Python."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or name


def write_data(root: Path, data_dir: Path | None) -> None:
    """Write the data of the MNIST setting to files, and the rows of each client, as our simulator has them."""
    data, _ = load(MNIST, data_dir)
    rng = MNIST.streams()["data"]
    rows = EQUAL.split(data.y_train, MNIST.federation.num_clients, rng)
    kept = np.stack([PAPER.kept_examples(r, rng) for r in rows])
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.save(root / f"{name}.npy", getattr(data, name))
    np.save(root / "rows.npy", kept)


def write_app(root: Path) -> Path:
    """Write a Flower app that trains the MNIST model, and return its folder."""
    app = root / "app"
    (app / "bench").mkdir(parents=True)
    for path, text in APP.items():
        (app / path).write_text(textwrap.dedent(text).lstrip())
    return app


APP = {
    "pyproject.toml": """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"

        [project]
        name = "bench"
        version = "1.0.0"
        description = "The MNIST setting in Flower"
        license = "Apache-2.0"
        dependencies = []

        [tool.hatch.build.targets.wheel]
        packages = ["."]

        [tool.flwr.app]
        publisher = "flanders"

        [tool.flwr.app.components]
        serverapp = "bench.server_app:app"
        clientapp = "bench.client_app:app"

        [tool.flwr.app.config]
        rounds = 3
        folder = ""
        out = ""
        """,
    "bench/__init__.py": "",
    "bench/model.py": """
        import functools

        import numpy as np
        import torch
        from torch import nn


        def build():
            return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


        @functools.cache
        def load(folder, name):
            return torch.from_numpy(np.load(f"{folder}/{name}.npy"))
        """,
    "bench/client_app.py": """
        import torch
        from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
        from flwr.clientapp import ClientApp
        from torch.nn.functional import cross_entropy

        from bench.model import build, load

        app = ClientApp()


        @app.train()
        def train(message, context):
            torch.set_num_threads(1)
            folder = context.run_config["folder"]
            x, y, rows = (load(folder, name) for name in ("x_train", "y_train", "rows"))
            own = rows[context.node_config["partition-id"]]
            own = own[torch.randperm(len(own))]
            model = build()
            model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            for batch in own.split(32):
                optimizer.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
            metrics = MetricRecord({"num-examples": len(own)})
            content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
            return Message(content=content, reply_to=message)
        """,
    "bench/server_app.py": """
        import json
        import time

        import torch
        from flwr.app import ArrayRecord, MetricRecord
        from flwr.serverapp import ServerApp
        from flwr.serverapp.strategy import FedAvg

        from bench.model import build, load

        app = ServerApp()


        @app.main()
        def main(grid, context):
            folder, times, model = context.run_config["folder"], [], build()

            def test(number, arrays):
                model.load_state_dict(arrays.to_torch_state_dict())
                with torch.no_grad():
                    right = model(load(folder, "x_test")).argmax(1) == load(folder, "y_test")
                times.append(time.perf_counter())
                return MetricRecord({"accuracy": float(right.float().mean())})

            strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=100, min_available_nodes=100)
            start = ArrayRecord(model.state_dict())
            strategy.start(
                grid=grid, initial_arrays=start, num_rounds=context.run_config["rounds"], evaluate_fn=test
            )
            with open(context.run_config["out"], "w") as file:
                json.dump(times, file)
        """,
}

if __name__ == "__main__":
    main()
