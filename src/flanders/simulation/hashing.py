"""Random numbers that are computed as hashes of a seed and a few whole numbers, e.g. the number of a client.

Equal inputs give equal random numbers on every device, no matter what was computed before. So the batches and
dropout masks of a client depend only on the seed of the round and on the client. They do not depend on the other
clients of the round, or on how many clients are trained at a time.

PyTorch hardly supports unsigned integers. So large factors are written as negative numbers with the same bits. If a
negative number is shifted with `>>`, its highest bits become 1. A mask then clears these bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 2**62
"""The largest number that `uniform` returns."""


def mix64(x: Tensor) -> Tensor:
    """Scramble int64 numbers. Different numbers give different results.

    If one bit of a number changes, about half of the bits of the result change.

    References
    ----------
    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & (2**33 - 1))


def mix32(x: Tensor) -> Tensor:
    """Scramble int32 numbers as `mix64` scrambles int64 numbers.

    References
    ----------
    Appleby, MurmurHash3 (the 32-bit finalizer), 2011.
    """
    x = (x ^ ((x >> 16) & (2**16 - 1))) * -0x7A143595
    x = (x ^ ((x >> 13) & (2**19 - 1))) * -0x3D4D51CB
    return x ^ ((x >> 16) & (2**16 - 1))


def keys(seed: int, *parts: Tensor) -> Tensor:
    """Return a tensor of random int64 keys, which are hashes of the seed and the whole numbers in `parts`.

    The tensors in `parts` are broadcast to a common shape, which is also the shape of the result. The key at a
    position is a hash of the seed and of the numbers that the tensors have at this position.
    """
    key = mix64(torch.tensor(wrap(seed), dtype=torch.int64, device=parts[0].device))
    for part in parts:
        key = mix64(key ^ (part.to(torch.int64) * -0x61C8864680B583EB + 1))
    return key


def uniform(seed: int, numbers: Tensor) -> Tensor:
    """Return random whole numbers from 0 to `LARGEST`, which are hashes of the seed and of each number."""
    return (keys(seed, numbers) >> 1).abs()


def in_share(share: float, examples: Tensor) -> Tensor:
    """Return whether each example is in a random share of all examples. The share is the same in every round."""
    return uniform(0, examples) < int(share * LARGEST)


def wrap(number: int) -> int:
    """Return a whole number as the int64 with the same last 64 bits."""
    return (number + 2**63) % 2**64 - 2**63
