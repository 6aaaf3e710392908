"""Runs a federation with a real SuperLink on this machine. Some clients crash, hang, are late, or send bad replies.

    python -m hardening.load [--nodes 20] [--rounds 3] [--timeout 90] [--json FILE]

The SuperLink, every SuperNode and every ClientApp are processes of their own. The scripts in `examples/deployment`
start them. Eight nodes misbehave. Three of them crash, hang, or reply after the round is over. Three of them send
an array of 80 MB, send NaN, or claim 2^53 examples. Two of them send each reply twice, or send replies under the id
of another node. The other nodes are honest. The federation runs twice: once with the filter around FedAvg, and once
with FedAvg alone. In both, a round waits for silent nodes until its timeout.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "deployment"
APP = ROOT / "hardening" / "load_app"
BIN = Path(sys.executable).parent
LONGEST = 20
"""A run is given up after this many times the timeout of a round."""


HOSTILE = {6: "forged", 7: "twice"}
"""The nodes whose SuperNode itself is hostile; see `hardening.hostile_supernode`."""


@dataclass(frozen=True)
class Loaded:
    """The results of one federation."""

    protected: bool
    nodes: int
    rounds_asked: int
    rounds_done: int
    finite: bool
    """Whether the global model was finite after every round that was done."""
    off: float
    """The largest difference between a number of the last model and the same number if all clients were honest."""
    seconds: tuple[float, ...]
    """How long each round took, in seconds."""
    fates: tuple[str, ...]
    """The lines of the log about the clients of each round. Empty without the filter."""
    error: str
    """The last error, if the run ended too early."""


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return environment variables with which Flower does not use the internet, and writes only to one folder."""
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PORT": str(port),
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }


def free_port(count: int) -> int:
    """Return the first of `count` consecutive ports that are most likely free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found if found + count < 60_000 else found - 2 * count


@contextmanager
def federation(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Start a SuperLink and its SuperNodes, and stop all of them after the block."""
    env = environment(folder, free_port(nodes + 1))

    def script(name: str, *arguments: str, **more: str) -> None:
        command = [str(SCRIPTS / name), str(folder), *arguments]
        subprocess.run(command, env={**env, **more}, check=True, stdout=subprocess.DEVNULL)

    own = folder / "bin"
    own.mkdir()
    (own / "flower-supernode").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m hardening.hostile_supernode "$@"\n'
    )
    (own / "flower-supernode").chmod(0o755)
    hostile = {"PATH": f"{own}{os.pathsep}{env['PATH']}", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    try:
        script("superlink.sh", "--insecure")
        for node in range(nodes):
            more = {**hostile, "HOSTILE": HOSTILE[node]} if node in HOSTILE else {}
            script("supernode.sh", str(node), str(nodes), "--insecure", **more)
        yield env
    finally:
        script("stop.sh")


def run_load(nodes: int, rounds: int, timeout: int, *, protected: bool) -> Loaded:
    """Run one federation, and return its results."""
    config = f"nodes={nodes} rounds={rounds} timeout={timeout} protected={str(protected).lower()}"
    with tempfile.TemporaryDirectory() as folder, federation(Path(folder), nodes) as env:
        command = [str(BIN / "flwr"), "run", str(APP), "lab", "--stream", "-c", config]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST * timeout)
            text = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            text = (error.stdout or b"").decode(errors="replace")
        text += (Path(folder) / "superlink.log").read_text(errors="replace")  # it has the errors of the ServerApp
    return read_log(text, nodes, rounds, protected=protected)


def read_log(text: str, nodes: int, rounds: int, *, protected: bool) -> Loaded:
    """Return the results of a federation from its log."""
    told = re.findall(r"loaded: round (\d+) finite (\w+) off (\S+) after (\S+) s", text)
    errors = re.findall(r"^.*(?:Error|Exception)\b.*$", text, re.MULTILINE)
    times = [0.0, *(float(seconds) for number, _, _, seconds in told if int(number))]
    last = max((int(number) for number, *_ in told), default=0)
    return Loaded(
        protected=protected,
        nodes=nodes,
        rounds_asked=rounds,
        rounds_done=last,
        finite=bool(told) and all(word == "True" for _, word, *_ in told),
        off=float(told[-1][2]) if told else math.nan,
        seconds=tuple(round(b - a, 1) for a, b in itertools.pairwise(times)),
        fates=tuple(line.strip()[:600] for line in re.findall(r"flanders: round .*", text)),
        error="" if last == rounds else (errors or [text[-200:]])[-1].strip()[:300],
    )


def main() -> int:
    """Read the command line, run both federations, and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m hardening.load",
        description="Run a federation with a real SuperLink and misbehaving clients.",
    )
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=90, help="seconds a round waits for replies (default: 90)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    found = [run_load(options.nodes, options.rounds, options.timeout, protected=each) for each in (True, False)]
    for each in found:
        name = "FilteredStrategy(FedAvg())" if each.protected else "FedAvg"
        print(
            f"{name}: {each.rounds_done} of {each.rounds_asked} rounds, {each.nodes} nodes, finite: {each.finite}, "
            f"off by {each.off:.3g}; seconds a round: {', '.join(map(str, each.seconds)) or 'none was done'}"
        )
        print("\n".join(f"    {line}" for line in (*each.fates, each.error) if line))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return 0 if found[0].rounds_done == options.rounds and found[0].finite else 1


if __name__ == "__main__":
    sys.exit(main())
