"""Independent random streams by name: the seed of a draw depends on what is drawn, never on what was drawn before."""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, *labels: str | int) -> torch.Generator:
    """Return a CPU generator that depends on the seed and the labels only.

    Args:
        seed: The run's seed.
        *labels: What the draw is for, for example setting, index of the instance, and variable.

    Example:
        >>> a, b = stream(7, "s", 3, "W"), stream(7, "s", 3, "W")
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        True
    """
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def choose(generator: torch.Generator, count: int) -> int:
    """Return a uniform random integer in 0..count - 1.

    Example:
        >>> choose(stream(0), 1)
        0
    """
    return int(torch.randint(count, (), generator=generator))
