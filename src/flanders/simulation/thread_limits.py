"""Functions that limit the number of threads with which PyTorch and NumPy compute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

_libraries: ThreadpoolController | None = None


def num_threads() -> int:
    """Return the number of threads that this process computes with by default."""
    return int(torch.get_num_threads())


@contextlib.contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Compute with this number of threads inside the `with` block, in PyTorch and in NumPy's linear algebra."""
    before = num_threads()
    with threadpool_limits(limits=threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit NumPy's linear algebra to one thread inside the `with` block.

    PyTorch's threads keep the cores busy for a while after their work. If NumPy used several threads, they would
    wait for these cores. For products of small matrices, they wait tens of times longer than they compute.
    """
    global _libraries
    if _libraries is None:
        _libraries = ThreadpoolController()
    limited: AbstractContextManager[object] = _libraries.limit(limits=1, user_api="blas")
    return limited
