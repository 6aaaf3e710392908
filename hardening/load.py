"""A real SuperLink on this machine, with clients that crash, hang, are late, or send what nobody asked for.

    python -m hardening.load [--nodes 10] [--rounds 3] [--timeout 60] [--json FILE]

The SuperLink, every SuperNode and every ClientApp are processes of their own, started by the scripts in
`examples/deployment`. Seven nodes misbehave: one crashes, one hangs, one replies after the round is over, one sends
an array of 80 MB, one sends NaN, one claims 2^53 examples, one claims to be another node. The others are honest.
The same federation runs with the filter around FedAvg, and with bare FedAvg. No client can reply twice here: a
SuperNode sends one reply to a message.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "deployment"
APP = ROOT / "hardening" / "load_app"
BIN = Path(sys.executable).parent
LONGEST = 20
"""A run is given up after this many timeouts of a round."""


@dataclass(frozen=True)
class Loaded:
    """What came of one federation."""

    protected: bool
    nodes: int
    rounds_asked: int
    rounds_done: int
    finite: bool
    seconds: float
    words: str
    """The last error, if the run has ended too early; else the last line about the clients."""


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return an environment in which Flower stays offline and keeps to one folder."""
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
    """Return a port that begins a range of ports that are most likely free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found if found + count < 60_000 else found - 2 * count


@contextmanager
def federation(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Start a SuperLink and its SuperNodes, and end all of them afterwards."""
    env = environment(folder, free_port(nodes + 1))

    def script(name: str, *arguments: str) -> None:
        subprocess.run([SCRIPTS / name, str(folder), *arguments], env=env, check=True, stdout=subprocess.DEVNULL)

    try:
        script("superlink.sh", "--insecure")
        for node in range(nodes):
            script("supernode.sh", str(node), str(nodes), "--insecure")
        yield env
    finally:
        script("stop.sh")


def run_load(nodes: int, rounds: int, timeout: int, *, protected: bool) -> Loaded:
    """Carry out one federation."""
    config = f"nodes={nodes} rounds={rounds} timeout={timeout} protected={str(protected).lower()}"
    with tempfile.TemporaryDirectory() as folder, federation(Path(folder), nodes) as env:
        start = time.monotonic()
        command = [str(BIN / "flwr"), "run", str(APP), "lab", "--stream", "-c", config]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST * timeout)
            text = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            text = (error.stdout or b"").decode(errors="replace")
        seconds = time.monotonic() - start
    told = re.findall(r"loaded: round (\d+) finite (\w+)", text)
    errors = re.findall(r"^.*(?:Error|Exception)\b.*$", text, re.MULTILINE)
    lines = re.findall(r"flanders: round .*", text)
    last = max((int(number) for number, _ in told), default=0)
    finite = bool(told) and all(word == "True" for _, word in told)
    words = (lines or [""])[-1] if last == rounds else (errors or [text[-200:]])[-1]
    return Loaded(protected, nodes, rounds, last, finite, round(seconds, 1), words.strip()[:400])


def main() -> int:
    """Read the command line, run both federations, and print what came of each."""
    parser = argparse.ArgumentParser(prog="python -m hardening.load", description="Load on a real SuperLink.")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=60, help="seconds a round waits for replies (default: 60)")
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    options = parser.parse_args()
    found = [run_load(options.nodes, options.rounds, options.timeout, protected=each) for each in (True, False)]
    for each in found:
        name = "FilteredStrategy(FedAvg())" if each.protected else "FedAvg"
        print(
            f"{name}: {each.rounds_done} of {each.rounds_asked} rounds, {each.nodes} nodes, finite: {each.finite}"
        )
        print(f"    {each.seconds} s; {each.words}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return 0 if found[0].rounds_done == options.rounds and found[0].finite else 1


if __name__ == "__main__":
    sys.exit(main())
