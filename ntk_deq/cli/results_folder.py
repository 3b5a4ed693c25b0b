"""The folder that a run writes to: made where it is missing, and held so that no second run writes there meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntk_deq.errors import ArgumentError

try:
    import fcntl
except ImportError:  # a system without this kind of lock, such as Windows: two runs are not told apart there
    fcntl = None  # type: ignore[assignment]

_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def held_folder(name: str) -> Iterator[Path]:
    """Hold a results folder until the block ends; a run that is killed lets go of it too.

    Args:
        name: The folder.

    Raises:
        ArgumentError: Another run holds it.
        OSError: It cannot be made.
    """
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            os.close(handle)
            raise ArgumentError(
                f"another run is writing to {name}; wait for it, or give another folder by `--out`."
            ) from None
        # A network file system may know no locks: two runs are not told apart there either.
    try:
        yield folder
    finally:
        os.close(handle)
