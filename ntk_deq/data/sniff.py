"""Say what a file is by its first bytes, for messages about a file that is not what its name or its user says."""

from __future__ import annotations

from pathlib import Path

from ntk_deq.errors import DataError
from ntk_deq.input_files import open_regular

GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"

_KNOWN = {
    GZIP: "gzip data",
    ZIP: "a zip archive (`.npz` files are zip archives)",
    b"PK\x05\x06": "an empty zip archive",
    b"\x93NUMPY": "a NumPy `.npy` array",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89HDF": "an HDF5 file",
    b"\x80": "a Python pickle, which is never opened: it could run code",
    b"<": "markup such as HTML",
    b"version https://git-lfs": "a Git LFS pointer",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
}


def opening(path: Path, count: int = 32) -> bytes:
    """Return the first bytes of a file.

    Raises:
        DataError: There is no such file, it cannot be read, or it is no regular file.
    """
    try:
        with open_regular(path) as stream:
            return stream.read(count)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def describe(first: bytes) -> str:
    """Return the first bytes in hexadecimal and, where known, what they mean.

    Example:
        >>> describe(b"PK" + bytes([3, 4, 0, 0]))
        'starts with 50 4b 03 04: a zip archive (`.npz` files are zip archives)'
    """
    if not first:
        return "is empty"
    shown = f"starts with {first[:4].hex(' ')}"
    for magic in sorted(_KNOWN, key=len, reverse=True):
        if first.startswith(magic):
            return f"{shown}: {_KNOWN[magic]}"
    return shown
