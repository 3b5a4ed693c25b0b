"""Read IDX files, the format in which MNIST and its relatives are handed out."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ntk_deq.data.image_set import MAX_BYTES, ImageSet, checked_image_set
from ntk_deq.data.sniff import GZIP, describe, opening
from ntk_deq.errors import DataError, LimitError
from ntk_deq.input_files import open_regular

_TYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_AXES_MAX = 4  # images with colour have four; the format allows 255


def read_idx(path: Path) -> npt.NDArray[np.generic]:
    """Read an IDX file, plain or compressed with gzip, into an array.

    The header is two zero bytes, a type, a number of axes, and each axis' size as a big-endian 32-bit integer.

    Args:
        path: The file; compression is seen from the content, not from the name.

    Raises:
        DataError: Not an IDX file, or its sizes do not agree with its length.
        LimitError: The array would take more than `MAX_BYTES`.

    References:
        LeCun, Cortes, Burges: The MNIST database, section on the IDX file format.
    """
    compressed = opening(path).startswith(GZIP)
    try:
        with open_regular(path) as stream:
            if not compressed:
                return _read(stream, path)
            with gzip.open(stream, "rb") as unpacked:
                return _read(unpacked, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the gzip data is damaged ({error}).") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None


def _read(stream: IO[bytes] | gzip.GzipFile, path: Path) -> npt.NDArray[np.generic]:
    """Read the header, then exactly as many bytes as it promises."""
    magic = stream.read(4)
    known = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in _TYPES and 1 <= magic[3] <= _AXES_MAX
    if not known:
        raise DataError(
            f"{path}: not an IDX file; one starts with 00 00, a type (08, 09, 0b..0e) and a number of axes (1 to "
            f"{_AXES_MAX}). This file {describe(magic + stream.read(28))}."
        )
    axes = magic[3]
    header = stream.read(4 * axes)
    if len(header) < 4 * axes:
        raise DataError(f"{path}: the file ends inside its header, which should give {axes} sizes.")
    shape = tuple(int(size) for size in np.frombuffer(header, dtype=">u4"))
    dtype = _TYPES[magic[2]]
    expected = math.prod(shape) * dtype.itemsize
    if expected > MAX_BYTES:
        raise LimitError(f"{path}: an array of shape {shape} would take {expected} bytes; at most {MAX_BYTES}.")
    payload = stream.read(expected + 1)
    if len(payload) != expected:
        found = f"{len(payload)}" if len(payload) < expected else "more"
        raise DataError(f"{path}: the header promises shape {shape}, {expected} bytes of data. Found {found}.")
    return np.frombuffer(payload, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))


def load_idx(images: Path, labels: Path) -> ImageSet:
    """Load images and labels from a pair of IDX files.

    Args:
        images: IDX file with three axes (n, height, width), or four with colour last.
        labels: IDX file with one axis (n).

    Raises:
        DataError: One of the files is not what it should be, or they do not fit together.
    """
    pixels, classes = read_idx(images), read_idx(labels)
    if pixels.ndim not in (3, 4):
        raise DataError(f"{images}: a file of images has 3 axes (n, height, width). Got shape {pixels.shape}.")
    if classes.ndim != 1:
        raise DataError(f"{labels}: a file of labels has 1 axis. Got shape {classes.shape}.")
    return checked_image_set(pixels, classes, name=str(images))
