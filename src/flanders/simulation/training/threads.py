"""Work on a CPU side by side: a thread on each core loses less to waiting than one computation on all cores."""

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
"""How many threads to use; more would wait for each other in Python."""


def count_for(device: torch.device) -> int:
    """Return how many threads suit a device: one for a GPU, else as many as PyTorch may use."""
    return min(torch.get_num_threads(), MOST) if device.type == "cpu" else 1


def side_by_side(work: Callable[[T, I], R], tools: Sequence[T], items: Sequence[I]) -> list[R]:
    """Return `work(tool, item)` for each item, in their order; no tool is used for two items at a time."""
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
    share = max(1, threads // len(tools))
    try:
        with ThreadPoolExecutor(len(tools), initializer=torch.set_num_threads, initargs=(share,)) as pool:
            return list(pool.map(with_a_tool, items))
    finally:
        torch.set_num_threads(threads)
