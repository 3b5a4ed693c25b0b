"""How much memory is free, and how much a process holds, in bytes; known on Linux, where `/proc` says so."""

from __future__ import annotations

import os
from pathlib import Path

SHARE = 0.8
"""The share of the free memory that the workers together may use: the rest is for the run itself and for others."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def default_memory(jobs: int) -> int | None:
    """Return the memory that each of `jobs` workers may use where nobody says how much, or None: not known here."""
    free = free_memory()
    return None if free is None else int(SHARE * free / jobs)


def free_memory() -> int | None:
    """Return the memory that can be had, by the machine and by the limit of a container, or None: not known here."""
    known = [_available(), *(_left(Path(limit), Path(used)) for limit, used in _CGROUPS)]
    return min((size for size in known if size is not None), default=None)


def held_memory(pid: int) -> int | None:
    """Return the memory that a process holds by itself, without what it shares with files; None: it is not known."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else None


def memory_text(size: float) -> str:
    """Return a number of bytes in words.

    Example:
        >>> memory_text(8.25e9), memory_text(5e8)
        ('8.25 GB', '500 MB')
    """
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def _left(limit: Path, used: Path) -> int | None:
    """What a container's limit leaves; None where it has none: its file is missing, or says `max`."""
    try:
        return max(0, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):
        return None
