"""Files that others have written, opened so that none of them can make a reader wait: regular files, nothing else.

What the user hands over by name as an open descriptor is no such file: `verify-claims check <(...)` reads its pipe.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|[0-9]+))/fd/([0-9]{1,9})")
# A pipe that nobody writes to would block even the call that opens it. Systems without pipes in folders lack the flag.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; links are followed.

    Args:
        path: The file.

    Raises:
        OSError: There is no such file, it cannot be opened, or it is a folder, a pipe, a socket or a device; `strerror`
            says which.

    Example:
        >>> open_regular(Path("/"))
        Traceback (most recent call last):
            ...
        IsADirectoryError: [Errno 21] it is a folder: '/'
    """
    try:
        _check_kind(os.stat(path).st_mode, path)  # before it is opened, since opening a device may set it going
        descriptor = os.open(path, _FLAGS)
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a NUL", repr(str(path))) from None
    try:
        _check_kind(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def descriptor_named(path: Path) -> int | None:
    """Return the open descriptor of this process that a path names, as shells write `<(...)`; None: it names none.

    Args:
        path: The path, as the user gave it.

    Example:
        >>> descriptor_named(Path("/dev/fd/63")), descriptor_named(Path("/dev/stdin")), descriptor_named(Path("63"))
        (63, 0, None)
    """
    if str(path) == "/dev/stdin":
        return 0
    match = _DESCRIPTOR.fullmatch(str(path))
    return None if match is None else int(match[1])


def open_named(path: Path) -> BinaryIO:
    """Open a file that the user named: a regular one, or an open descriptor whatever is behind it.

    A pipe can be read once, and reading it waits for the one who writes to it.

    Args:
        path: The path, as the user gave it.

    Raises:
        OSError: As for `open_regular`, or there is no such descriptor.

    Example:
        >>> open_named(Path("/dev/fd/987654321"))
        Traceback (most recent call last):
            ...
        OSError: [Errno 9] Bad file descriptor
    """
    number = descriptor_named(path)
    return open_regular(path) if number is None else os.fdopen(os.dup(number), "rb")


def _check_kind(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise OSError(errno.EINVAL, f"it is {name}, no regular file", str(path))
