from __future__ import annotations

import subprocess
import sys

import pytest

from flanders import InputError
from flanders.extras import MissingExtra, needing

NEEDS = [
    ("import flanders.flower", "flwr", "flower"),
    ("import flanders.flower.legacy", "flwr", "flower"),
    ("import flanders.nvflare", "nvflare", "nvflare"),
    ("import flanders.simulation", "torch", "sim"),
    ("import flanders.simulation", "threadpoolctl", "sim"),
    ("import flanders.models", "torch", "sim"),
    ("import flanders.experiments", "torch", "sim"),
    ("from flanders.data import Digits; Digits().load()", "sklearn", "sim"),
    ("from flanders.data import Mnist; Mnist().load()", "flwr_datasets", "download"),
    (
        "from flanders.data.flower_partition import find_partitioner as f; f('IidPartitioner')",
        "datasets",
        "download",
    ),
    ("from flanders.report import write_figures; write_figures('x', 'y')", "matplotlib", "report"),
    ("import flanders.report.plots", "matplotlib", "report"),
    ("from flanders.callbacks import TensorBoard; TensorBoard('x')", "tensorboard", "tensorboard"),
    ("from flanders.callbacks import MLflow; MLflow()", "mlflow", "mlflow"),
    ("from flanders.callbacks import WandB; WandB()", "wandb", "wandb"),
    ("from flanders.callbacks import Prometheus; Prometheus(0)", "prometheus_client", "prometheus"),
]
"""Code, a package without which it cannot run, and the extra that has the package."""


def test_a_missing_extra_is_an_import_error_that_names_it_wherever_it_is_needed() -> None:
    code = """
import sys
needs = eval(sys.stdin.read())
for text, package, extra in needs:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("flanders", package)]:
        del sys.modules[name]
    sys.modules[package] = None
    try:
        exec(text, {})
        print(text, package, "needs nothing")
    except ImportError as error:
        if f"flanders-fl[{extra}]" not in str(error):
            print(text, package, error)
    del sys.modules[package]
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=repr(NEEDS), capture_output=True, text=True, check=False
    )
    assert done.stdout == "", done.stdout
    assert done.returncode == 0, done.stderr


def test_it_is_wrong_input_too_so_that_commands_print_one_line() -> None:
    with pytest.raises(MissingExtra) as caught, needing("report"):
        import no_such_package  # noqa: F401
    assert isinstance(caught.value, InputError)
    assert caught.value.name == "no_such_package"
