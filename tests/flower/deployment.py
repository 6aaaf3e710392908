"""SuperLinks, SuperNodes and runs as processes on this machine, each of them ended by its id."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
APP = EXAMPLES / "flower-app"


def free_ports(count):
    """Return a port that nobody listens on, nor on the ones after it, `count` in all."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def environment(home, **more):
    """Return an environment in which Flower stays offline and keeps to one folder."""
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        **more,
    }


def wait_for(what, seconds, *, told=lambda: ""):
    """Return the first true value of a function that is asked again and again; else fail with what is `told`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError(f"it did not come in {seconds} s; {told()}")


def below(pid):
    """Return the processes that a process has started, and those that these have, by id, with their commands."""
    everyone = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            everyone[int(folder.name)] = parent, (folder / "cmdline").read_text().replace("\0", " ").strip()
    found, newest = {}, {pid}
    while newest:
        found |= {id_: line for id_, (parent, line) in everyone.items() if parent in newest}
        newest = {id_ for id_, (parent, _) in everyone.items() if parent in newest}
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Run:
    """A `flwr run` of the example app with changes to its config, and what it tells."""

    def __init__(self, config, env, *options):
        pairs = [f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items()]
        command = [BIN / "flwr", "run", str(APP), "lab", "--stream", "-c", " ".join(pairs), *options]
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(re.sub(r"\x1b\[\d*m", "", line.rstrip()))

    @property
    def text(self):
        return "\n".join(self.lines)

    def wait_for(self, pattern, seconds):
        """Wait until a line matches."""
        return wait_for(lambda: re.search(pattern, self.text), seconds, told=lambda: self.text)

    def finish(self, seconds):
        """Wait for the end and return all that was told."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end in {seconds} s: {self.text}") from None
        finally:
            self.stop()
        return self.text

    def stop(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()

    @property
    def dropped(self):
        """The nodes that each round has dropped, by round."""
        rounds = re.findall(r"flanders: round (\d+): kept \d+ of \d+ replies(.*)", self.text)
        return {
            int(number): re.findall(r"(\d+)(?: \([^)]*\))? \[score", rest.partition("dropped")[2])
            for number, rest in rounds
        }

    @property
    def accuracy(self):
        """Of the last global model."""
        return float(re.findall(r"MetricRecord: \{'accuracy': ([\d.e-]+)", self.text)[-1])


class Federation:
    """A SuperLink with its SuperNodes, started by the scripts in `examples/deployment`."""

    def __init__(self, folder, *, secure):
        self.folder, self.flag = folder, [] if secure else ["--insecure"]
        self.env = environment(folder / "flwr", PORT=str(free_ports(6)))
        self._runs = []

    def script(self, name, *arguments, **environment):
        """Run one of the scripts and return what it prints."""
        done = subprocess.run(
            [EXAMPLES / "deployment" / name, str(self.folder), *map(str, arguments)],
            env={**self.env, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_node(self, index, count, **environment):
        """Start a SuperNode and return its node id, once it is online."""
        before = set(self.online())
        self.script("supernode.sh", index, count, *self.flag, **environment)
        (new,) = wait_for(lambda: set(self.online()) - before, 60, told=lambda: self.log(f"node-{index}"))
        return new

    def online(self):
        """Return the ids of the nodes that are connected."""
        told = self._flwr("supernode", "list", "lab", "--format", "json")
        return [node["node-id"] for node in json.loads(told)["nodes"] if node["status"] == "online"]

    def run(self, **config):
        """Start the example app with changes to its config, and return the run."""
        self._runs.append(Run(config, self.env))
        return self._runs[-1]

    def pid(self, name):
        return int((self.folder / "run" / f"{name}.pid").read_text())

    def kill(self, name):
        """Kill a SuperNode, and the ClientApp it may be running with it."""
        doomed = [self.pid(name), *below(self.pid(name))]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def server_app(self):
        """Return the id of the process in which the ServerApp runs, or None."""
        return next((p for p, line in below(self.pid("superlink")).items() if "flwr-serverapp" in line), None)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self):
        """End everything by the script, and make sure of it."""
        for run in self._runs:
            run.stop()
        everyone = {}
        for path in (self.folder / "run").glob("*.pid"):
            everyone |= {int(path.read_text()): path.name, **below(int(path.read_text()))}
        try:
            self.script("stop.sh")
            left = {pid: line for pid, line in everyone.items() if is_running(pid)}
            assert not left
        finally:
            for pid in filter(is_running, everyone):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _flwr(self, *arguments):
        done = subprocess.run([BIN / "flwr", *arguments], env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class SimulationRuntime:
    """A SuperLink that simulates its nodes: such as `flwr run` starts and leaves behind, but this one is ended."""

    def __init__(self, folder):
        home, port = folder / "flwr", free_ports(1)
        home.mkdir(parents=True)
        (home / "config.toml").write_text(f'[superlink.lab]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
        self.env = environment(home)
        self.log = folder / "superlink.log"
        command = [
            BIN / "flower-superlink",
            "--insecure",
            "--simulation",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=self.env, cwd=folder, stdout=log, stderr=log)
        wait_for(lambda: _listens(port), 60, told=self.log.read_text)

    def run(self, **config):
        """Start the example app on ten nodes, and return the run."""
        sizes = "num-supernodes=10 client-resources-num-cpus=1 init-args-num-cpus=2"
        return Run(config, self.env, "--federation-config", sizes)

    def stop(self):
        everyone = [self.process.pid, *below(self.process.pid)]
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        for pid in filter(is_running, everyone):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
