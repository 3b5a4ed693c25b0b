"""Files that appear whole or not at all, also where several processes write the same one; never through a link."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path

_PARTIAL = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\.partial")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step: a reader sees the old one or the whole new one. A link at `path` is replaced.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:  # never what is there already, such as a link
            stream.write(content)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def is_partial(path: Path) -> bool:
    """Whether a file is what `write_whole` leaves behind where it is killed."""
    return _PARTIAL.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def own_folder(path: Path) -> Path:
    """Return a folder, made where it is missing, that is no link: what is written or removed there is nowhere else.

    Raises:
        OSError: It is a link or a file, or it cannot be made.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, and nothing is written through one", str(path))
    path.mkdir(exist_ok=True)
    return path


def sweep(folder: Path, pid: int) -> None:
    """Remove what a process that was ended has half written in a folder or below it."""
    with contextlib.suppress(OSError):
        for path in folder.rglob(f".*.{pid}-*.partial"):
            path.unlink(missing_ok=True)
