"""NumPy archives (`.npz`): written with any names; from strangers, read with no pickle and no header taken for Python.

Nothing is read that is not asked for.

Values read back from the file of a run, which may be torn or tampered with, checked before it goes on.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ntk_deq.errors import DataError, is_number
from ntk_deq.files import open_regular

_MAGIC = b"\x93NUMPY"
_LENGTHS = {b"\x01\x00": "<H", b"\x02\x00": "<I", b"\x03\x00": "<I"}  # of the header, by version of the format
_HEADER = 4096  # bytes that the header of one array may take; NumPy writes 128
_MEMBERS = 100_000  # arrays that an archive may have; a training run has a few hundred
_AXES = 32
# The header is a Python dict of three entries. It is matched, not evaluated: a stranger's brackets could nest deeply.
_ENTRY = re.compile(
    r"\s*'(?P<key>descr|fortran_order|shape)'\s*:\s*"
    r"(?:'(?P<descr>[<>|=]?[biufcSUOV][0-9]{0,9})'|(?P<order>True|False)|\((?P<shape>[0-9, ]*)\))\s*(?:,|(?=\}))"
)
_KEYS = {"descr": "descr", "fortran_order": "order", "shape": "shape"}
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    TypeError,
)


def write_archive(stream: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]], *, comment: bytes = b"") -> None:
    """Write arrays as an archive that `numpy.load` reads, byte for byte what `numpy.savez` writes.

    `numpy.savez` takes the arrays as keywords, among which a name such as `file` has another meaning.

    Args:
        stream: Where to.
        arrays: The arrays by name; of numbers, since nothing is pickled.
        comment: What ends the archive.

    Example:
        >>> import io
        >>> stream = io.BytesIO()
        >>> write_archive(stream, {"file": np.ones(2)})
        >>> _ = stream.seek(0)
        >>> np.load(stream)["file"].tolist()
        [1.0, 1.0]
    """
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
        archive.comment = comment


class ArchiveError(DataError):
    """A file is no NumPy archive, or a damaged one; the message says what is wrong, not where the file lies."""


@dataclass(frozen=True)
class ArrayHeader:
    """What an archive says of one array.

    Attributes:
        shape: Its shape.
        dtype: The type of its entries.
        fortran: Whether the first index runs fastest.
        start: Bytes before its entries.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int


class ArrayArchive:
    """An open archive; see `open_archive`.

    Attributes:
        members: What lies in it, by the name of the array.
    """

    def __init__(self, opened: zipfile.ZipFile) -> None:
        self._opened = opened
        listed = opened.infolist()
        if len(listed) > _MEMBERS:
            raise ArchiveError(f"the archive is damaged: it may hold at most {_MEMBERS} arrays. Got {len(listed)}.")
        self.members: dict[str, zipfile.ZipInfo] = {}
        for member in listed:
            name = member.filename.removesuffix(".npy")
            if name in self.members:
                raise ArchiveError(f"the archive is damaged: it holds two arrays of the name {name[:60]!r}.")
            self.members[name] = member

    @property
    def size(self) -> int:
        """Bytes of all arrays once decompressed, as the archive says."""
        return sum(member.file_size for member in self.members.values())

    @property
    def compressed(self) -> bool:
        """Whether some array is compressed."""
        return any(member.compress_type != zipfile.ZIP_STORED for member in self.members.values())

    def header(self, name: str) -> ArrayHeader:
        """Return what the archive says of an array, and check it against the length of its entries.

        Args:
            name: The array.

        Raises:
            ArchiveError: There is no such array, or it is damaged or of a kind that is never opened.
        """
        with _damage(), self._open(name) as stream:
            return self._header(name, stream)

    def array(self, name: str, *, most: int) -> npt.NDArray[Any]:
        """Return an array, writable and in the byte order of the machine.

        Args:
            name: The array.
            most: Bytes that its entries may take.

        Raises:
            ArchiveError: There is no such array, it is damaged, of a kind that is never opened, or larger than `most`.
        """
        with _damage(), self._open(name) as stream:
            found = self._header(name, stream)
            wanted = math.prod(found.shape) * found.dtype.itemsize
            if wanted > most:
                raise ArchiveError(f"array {name!r} takes {wanted} bytes; at most {most} are allowed.")
            content = stream.read(wanted)
            if len(content) != wanted or stream.read(1):  # reading to the end checks the checksum, too
                raise ArchiveError(f"the archive is damaged: array {name!r} ends after {len(content)} bytes.")
            flat = np.frombuffer(content, dtype=found.dtype).astype(found.dtype.newbyteorder("="))
            return flat.reshape(found.shape, order="F" if found.fortran else "C")

    def _open(self, name: str) -> IO[bytes]:
        member = self.members.get(name)
        if member is None:
            raise ArchiveError(f"there is no array {name!r} in it.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"array {name!r} is compressed in a way that NumPy does not use.")
        return self._opened.open(member)

    def _header(self, name: str, stream: IO[bytes]) -> ArrayHeader:
        start = stream.read(8)
        if not start.startswith(_MAGIC):
            raise ArchiveError(f"array {name!r} is not in NumPy's format; it starts with {start[:4].hex(' ')}.")
        length_format = _LENGTHS.get(start[len(_MAGIC) :])
        if length_format is None:
            raise ArchiveError(f"array {name!r} is of an unknown version of NumPy's format.")
        width = struct.calcsize(length_format)
        (length,) = struct.unpack(length_format, stream.read(width))
        if length > _HEADER:
            raise ArchiveError(f"array {name!r} has a header of {length} bytes; at most {_HEADER} are allowed.")
        shape, dtype, fortran = _parsed(name, stream.read(length))
        found = ArrayHeader(shape, dtype, fortran, len(start) + width + length)
        wanted, there = math.prod(shape) * dtype.itemsize, self.members[name].file_size - found.start
        if wanted != there:
            raise ArchiveError(f"the header of array {name!r} promises shape {shape}, {wanted} bytes. Found {there}.")
        return found


@contextmanager
def open_archive(path: Path) -> Iterator[ArrayArchive]:
    """Open an archive for reading.

    Args:
        path: The file.

    Raises:
        ArchiveError: It is no archive, or damaged.
        OSError: It cannot be read, or is no regular file.

    Example:
        >>> with open_archive(Path("missing.npz")) as archive:
        ...     archive.members
        Traceback (most recent call last):
            ...
        FileNotFoundError: [Errno 2] No such file or directory: 'missing.npz'
    """
    with open_regular(path) as stream:
        with _damage():
            opened = zipfile.ZipFile(stream)
        with opened:
            yield ArrayArchive(opened)


@contextmanager
def _damage() -> Iterator[None]:
    """Turn what a damaged archive runs into to an `ArchiveError`."""
    try:
        yield
    except ArchiveError:
        raise
    except (*_DAMAGED, OSError) as error:
        raise ArchiveError(f"the archive is damaged or of a kind that cannot be read ({error}).") from None


def _parsed(name: str, header: bytes) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return shape, type and order from the text of a header."""
    text = header.decode("latin-1").strip()
    entries: dict[str, str] = {}
    place = 1
    while (match := _ENTRY.match(text, place)) is not None:
        value = match[_KEYS[match["key"]]]
        if value is None or match["key"] in entries:
            break
        entries[match["key"]] = value
        place = match.end()
    if not text.startswith("{") or text[place:].strip() != "}" or len(entries) != len(_KEYS):
        raise ArchiveError(f"the header of array {name!r} is damaged, or that of no array of numbers.")
    sizes = [part.strip() for part in entries["shape"].split(",")]
    if sizes[-1] == "":  # `(3, 4,)` and `()`
        sizes.pop()
    if len(sizes) > _AXES or not all(size.isdecimal() and len(size) <= 18 for size in sizes):
        raise ArchiveError(f"the header of array {name!r} gives no shape.")
    dtype = np.dtype(entries["descr"])
    if dtype.hasobject:
        raise ArchiveError(f"array {name!r} holds Python objects, which are never opened: they could run code.")
    return tuple(map(int, sizes)), dtype, entries["fortran_order"] == "True"


def owned(value: Tensor) -> Tensor:
    """Return a copy in row-major order.

    Files keep arrays in this order, and products of arrays in another one are rounded in another way, so that a run
    that is read from a file would not go on bit by bit.

    Example:
        >>> owned(torch.ones(3, 2).T).stride()
        (3, 1)
    """
    return value.detach().clone(memory_format=torch.contiguous_format)


MOST_STEPS = 2**53
"""Beyond it floats skip whole numbers."""


def stored_number(value: object, what: str, low: float = 0.0, high: float = math.inf, *, nan: bool = False) -> Any:
    """Return a number from a file.

    Args:
        value: What the file holds.
        what: Its name, for the error.
        low: The least that it may be.
        high: The most that it may be.
        nan: Whether it may be NaN.

    Raises:
        ValueError: It is no number, or out of range.

    Example:
        >>> stored_number(float("nan"), "rate", 0, 1)
        Traceback (most recent call last):
            ...
        ValueError: `rate` must be a number from 0 to 1. Got nan.
    """
    if is_number(value) and (low <= value <= high or (nan and value != value)):  # type: ignore[operator]
        return value
    raise ValueError(f"`{what}` must be a number from {low:g} to {high:g}. Got {value!r:.40}.")


def stored_count(value: object, what: str, low: int = 0, high: int = MOST_STEPS) -> int:
    """Return a whole number from a file; arguments and errors as for `stored_number`.

    Example:
        >>> stored_count(3, "steps")
        3
    """
    if not isinstance(value, int):
        raise ValueError(f"`{what}` must be a whole number from {low} to {high}. Got {value!r:.40}.")
    return int(stored_number(value, what, low, high))


def stored_tensor(value: object, like: Tensor, what: str) -> Tensor:
    """Return a copy of a tensor from a file that must be of the shape, type and device of another one.

    Args:
        value: What the file holds.
        like: The other one.
        what: Its name, for the error.

    Raises:
        ValueError: It is no tensor, or of another kind.

    Example:
        >>> import torch
        >>> stored_tensor(torch.ones(2), torch.zeros(3), "norms")
        Traceback (most recent call last):
            ...
        ValueError: `norms` must be a tensor of shape (3,) and type torch.float32 on cpu.
    """
    if (
        isinstance(value, Tensor)
        and value.shape == like.shape
        and value.dtype == like.dtype
        and value.device == like.device
    ):
        return owned(value)
    raise ValueError(f"`{what}` must be a tensor of shape {tuple(like.shape)} and type {like.dtype} on {like.device}.")


def stored_tensors(value: object, like: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return copies of tensors from a file, by the names of others and each like the other one of its name.

    Args:
        value: What the file holds.
        like: The others.
        what: Their name, for the error.

    Raises:
        ValueError: The names differ, or one is of another kind.

    Example:
        >>> stored_tensors({}, {}, "gradients")
        {}
    """
    if not isinstance(value, Mapping) or list(value) != list(like):
        raise ValueError(f"`{what}` must hold {', '.join(like)}, in this order.")
    return {name: stored_tensor(value[name], like[name], f"{what}.{name}") for name in like}
