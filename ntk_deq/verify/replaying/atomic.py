"""Files that appear whole or not at all, also where several processes write the same one."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step: a reader sees the old one or the whole new one.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sweep(folder: Path, pid: int) -> None:
    """Remove what a process that was ended has half written in a folder or below it."""
    with contextlib.suppress(OSError):
        for path in folder.rglob(f".*.{pid}-*.partial"):
            path.unlink(missing_ok=True)
