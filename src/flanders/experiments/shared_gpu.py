"""Lets several processes compute on one GPU at the same time.

By default a GPU gives its time to one process after the other. With NVIDIA's Multi-Process Service (MPS), the
processes compute side by side. MPS is a daemon: a program that runs in the background. This module starts a daemon
that only the processes of one grid know, and ends it after them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
"""NVIDIA's program that is the daemon, and that passes commands to a daemon. It comes with NVIDIA's driver."""
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
"""The environment variable with the folder in which a process looks for the daemon."""
LOGS = "CUDA_MPS_LOG_DIRECTORY"
"""The environment variable with the folder to which the daemon writes its logs."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable with which a user chooses GPUs. They are given by numbers or by names."""
LIMIT = 20.0
"""The daemon gets this many seconds to start, to answer and to end. A daemon that needs longer is killed."""
PAUSE = 0.1
"""Seconds between two questions to a daemon that is starting. This time is short, so that the runs start soon."""
PROBE = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); "
    "code = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0); "
    "raise SystemExit(code and f'CUDA error {code}')"
)
"""A Python program that fails if it cannot use the first GPU. It needs NVIDIA's driver, but not PyTorch."""

log = logging.getLogger("flanders")


@contextlib.contextmanager
def sharing_gpu(wanted: bool) -> Iterator[Mapping[str, str]]:
    """Yield the environment variables of processes that share a GPU. They are valid inside the `with` block.

    There are no variables if the daemon is not `wanted`, or if the user has started a daemon. If the daemon cannot
    be started, there are none either, and an error is logged.
    """
    variables: Mapping[str, str] = {}
    with contextlib.ExitStack() as stack:
        if wanted and PIPES not in os.environ:
            try:
                if not _send("get_server_list", {}):
                    variables = stack.enter_context(_daemon())
            except (OSError, subprocess.SubprocessError) as error:
                log.error("NVIDIA's MPS cannot be used (%s). The runs go on, and take turns on the GPU.", error)
        yield variables


@contextlib.contextmanager
def _daemon() -> Iterator[Mapping[str, str]]:
    """Start a daemon, and yield the environment variables with which processes use it. In the end, stop it."""
    with tempfile.TemporaryDirectory(prefix="flanders-", ignore_cleanup_errors=True) as folder:
        variables = dict.fromkeys((PIPES, LOGS), folder)
        env, output = {**os.environ, **variables}, Path(folder, "output")
        with output.open("w") as file:  # the daemon has a session of its own, so that Ctrl-C does not end it
            daemon = subprocess.Popen(
                [CONTROL, "-f"], env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        try:
            _wait_for_answer(daemon, variables, output)
            chosen = os.environ.get(VISIBLE, "").split(",")
            if all(each.strip().isdecimal() for each in chosen):  # the daemon counts the chosen GPUs from 0
                variables[VISIBLE] = ",".join(map(str, range(len(chosen))))
            probe = _run([sys.executable, "-S", "-c", PROBE], variables)
            if probe.returncode != 0:
                said = probe.stderr.strip().rpartition("\n")[2]
                raise subprocess.SubprocessError(f"no process can use the GPU through it: {said}")
            yield variables
        finally:
            _end(daemon, variables)


def _wait_for_answer(daemon: subprocess.Popen[bytes], variables: Mapping[str, str], output: Path) -> None:
    """Wait until the daemon answers. If it ends or needs too long, raise an error."""
    latest = time.monotonic() + LIMIT
    while not _send("get_server_list", variables):
        if daemon.poll() is not None:
            said = output.read_text(errors="replace").strip().rpartition("\n")[2]
            raise subprocess.SubprocessError(f"{CONTROL} ended with exit code {daemon.returncode}: {said}")
        if time.monotonic() > latest:
            raise subprocess.SubprocessError(f"{CONTROL} has not answered after {LIMIT:g} seconds")
        time.sleep(PAUSE)


def _end(daemon: subprocess.Popen[bytes], variables: Mapping[str, str]) -> None:
    """Ask the daemon to quit. If it does not, kill it and the processes that it has started."""
    try:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if _send("quit", variables):
                daemon.wait(LIMIT)
    finally:
        if daemon.poll() is None:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


def _send(command: str, variables: Mapping[str, str]) -> bool:
    """Pass a command to the daemon. Return whether the daemon has taken it."""
    return _run([CONTROL], variables, f"{command}\n").returncode == 0


def _run(command: list[str], variables: Mapping[str, str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with additional environment variables and with a text as its input."""
    env = {**os.environ, **variables}
    return subprocess.run(
        command, env=env, input=text, capture_output=True, errors="replace", timeout=LIMIT, start_new_session=True
    )
