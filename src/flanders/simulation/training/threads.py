"""A function that does several pieces of work at a time on a CPU, each in a thread of its own.

This is faster than one piece at a time on all cores, since cores that share a piece of work wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

MOST = 8
"""The most threads to use. Only one can run Python code at a time, so more threads would wait for each other."""


def count_for(device: torch.device) -> int:
    """Return the number of threads for a device: one for a GPU, else as many as PyTorch may use, up to `MOST`."""
    return min(torch.get_num_threads(), MOST) if device.type == "cpu" else 1


def side_by_side(work: Callable[[T, I], R], tools: Sequence[T], items: Sequence[I]) -> list[R]:
    """Return `work(tool, item)` for each item, in order. There are at most as many threads as tools.

    A tool is an object that a thread needs for itself while it works, e.g. a copy of the model. No two threads use
    the same tool at the same time.
    """
    tools = tools[: len(items)]
    if len(tools) <= 1:
        return [work(tools[0], item) for item in items]
    free: SimpleQueue[T] = SimpleQueue()
    for tool in tools:
        free.put(tool)

    def with_a_tool(item: I) -> R:
        tool = free.get()
        try:
            return work(tool, item)
        finally:
            free.put(tool)

    threads = torch.get_num_threads()
    per_tool = max(1, threads // len(tools))
    try:
        with ThreadPoolExecutor(len(tools), initializer=torch.set_num_threads, initargs=(per_tool,)) as pool:
            return list(pool.map(with_a_tool, items))
    finally:
        torch.set_num_threads(threads)
