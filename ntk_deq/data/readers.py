"""Read IDX files, the format in which MNIST and its relatives are handed out.

Labelled images as they come from a source, checked, before any choice or scaling.

Say what a file is by its first bytes, for messages about a file that is not what its name or its user says.

Read labelled images from a `.npz` file without trusting it: no pickles, sizes checked before anything is decoded.
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ntk_deq.errors import ArgumentError, DataError, LimitError
from ntk_deq.files import open_regular
from ntk_deq.files.archives import ArchiveError, ArrayArchive, open_archive

BYTE_MAX = 255  # the white of an 8-bit image

# Bytes of decoded pixels that a source may hold: forty times MNIST as float64, and it fits a small machine.
MAX_BYTES = 2 * 1024**3

_LARGEST_LABEL = 2.0**53  # beyond it a whole number may wrap in int64, or stand for its neighbours in float64


@dataclass(frozen=True)
class ImageSet:
    """Labelled images of one source.

    Attributes:
        images: Array (n, pixels), (n, height, width) or (n, height, width, 3); integers 0..255, or floats.
        labels: Integer array (n,).
        name: The source, for messages.
    """

    images: npt.NDArray[np.generic]
    labels: npt.NDArray[np.int64]
    name: str

    def __repr__(self) -> str:
        count, shape, classes = len(self.labels), self.images.shape[1:], len(np.unique(self.labels))
        return f"ImageSet({self.name!r}, {count} images of shape {shape}, {classes} classes)"


def checked_image_set(images: npt.NDArray[np.generic], labels: npt.NDArray[np.generic], *, name: str) -> ImageSet:
    """Check images and labels against each other and build an `ImageSet`.

    Args:
        images: As in `ImageSet`; also (n, 1, height, width), (n, 3, height, width) and (n, height, width, 1).
        labels: Array (n,) or (n, 1) of whole numbers.
        name: The file or source, for messages.

    Raises:
        ArgumentError: One of them is no array.
        DataError: Wrong number of axes, wrong dtype, counts that differ, NaN, Inf, or a value out of range.

    Example:
        >>> checked_image_set(np.zeros((2, 3, 3), dtype=np.uint8), np.array([0, 1]), name="made up")
        ImageSet('made up', 2 images of shape (3, 3), 2 classes)
    """
    for what, value in (("images", images), ("labels", labels)):
        if not isinstance(value, np.ndarray):
            raise ArgumentError(f"`{what}` must be a NumPy array. Got {type(value).__name__}.")
    images = _canonical_axes(images, name)
    whole = _whole_labels(labels, name)
    if len(images) != len(whole):
        raise DataError(f"{name}: {len(images)} images but {len(whole)} labels; there must be one label an image.")
    if images.dtype.kind not in "uif":
        raise DataError(f"{name}: images must be integers or floats. Got dtype {images.dtype}.")
    if images.size == 0:
        raise DataError(f"{name}: holds no pixels; its array has shape {images.shape}.")
    _check_values(images, name)
    return ImageSet(images, whole, name)


def _canonical_axes(images: npt.NDArray[np.generic], name: str) -> npt.NDArray[np.generic]:
    """Bring the colour axis last, or drop it where it has one channel."""
    if images.ndim == 4:
        if images.shape[3] not in (1, 3) and images.shape[1] in (1, 3):
            images = np.moveaxis(images, 1, 3)
        if images.shape[3] == 1:
            images = images[..., 0]
    if images.ndim in (2, 3) or (images.ndim == 4 and images.shape[3] == 3):
        return images
    raise DataError(
        f"{name}: images must have shape (n, pixels), (n, height, width) or (n, height, width, 3). Got {images.shape}."
    )


def _whole_labels(labels: npt.NDArray[np.generic], name: str) -> npt.NDArray[np.int64]:
    """Return the labels as int64; floats are accepted where every one is a whole number."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"{name}: labels must have shape (n,). Got {labels.shape}.")
    if labels.dtype.kind not in "uifb":
        raise DataError(f"{name}: labels must be whole numbers. Got dtype {labels.dtype}.")
    if labels.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(labels) | (labels != np.floor(labels)))
        if bad.size:
            raise DataError(f"{name}: label {bad[0]} (counted from 0) must be a whole number. Got {labels[bad[0]]}.")
    large = np.flatnonzero(np.abs(labels.astype(np.float64)) > _LARGEST_LABEL)
    if large.size:
        got = f"label {large[0]} (counted from 0) must lie between -2^53 and 2^53. Got {labels[large[0]]}."
        raise DataError(f"{name}: {got}")
    return labels.astype(np.int64)


def _check_values(images: npt.NDArray[np.generic], name: str) -> None:
    """Refuse NaN, Inf and values outside 0..255, naming the first one's place."""
    flat = images.reshape(len(images), -1)
    if images.dtype.kind == "f":
        _refuse(flat, ~np.isfinite(flat), f"{name}: every pixel must be finite")
    if images.dtype != np.uint8:
        _refuse(flat, np.less(flat, 0) | np.greater(flat, BYTE_MAX), f"{name}: every pixel must lie in 0..{BYTE_MAX}")


def _refuse(flat: npt.NDArray[np.generic], bad: npt.NDArray[np.bool_], rule: str) -> None:
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(f"{rule}. Got {flat[row, column]} in row {row}, column {column} (counted from 0).")


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


def opening(path: Path) -> bytes:
    """Return the first bytes of a file.

    Raises:
        DataError: There is no such file, it cannot be read, or it is no regular file.
    """
    try:
        with open_regular(path) as stream:
            return stream.read(32)
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


_KEYS = (("X", "y"), ("images", "labels"), ("x_train", "y_train"))
_LISTED = 20  # names that a message gives


def load_npz(path: Path) -> ImageSet:
    """Load images and labels from a NumPy archive.

    Args:
        path: A `.npz` file with the arrays X and y, or images and labels, or x_train and y_train.

    Raises:
        DataError: Not such an archive, damaged, without these arrays, or with objects or text in them.
        LimitError: The arrays would take more than `MAX_BYTES` once decompressed.
    """
    first = opening(path)
    if not first.startswith(ZIP):
        raise DataError(f"{path}: not a NumPy archive; one starts with 50 4b 03 04. This file {describe(first)}.")
    try:
        with open_archive(path) as archive:
            if archive.size > MAX_BYTES:
                raise LimitError(
                    f"{path}: its arrays would take {archive.size} bytes once decompressed; at most {MAX_BYTES}."
                )
            keys = _keys(archive, path)
            for key in keys:
                dtype = archive.header(key).dtype
                if dtype.kind not in "uifb":
                    raise DataError(f"{path}: array {key!r} must hold integers or floats. Got dtype {dtype}.")
            images, labels = (archive.array(key, most=MAX_BYTES) for key in keys)
    except ArchiveError as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    return checked_image_set(images, labels, name=str(path))


def _keys(archive: ArrayArchive, path: Path) -> tuple[str, str]:
    """Return the names of the images and of the labels."""
    for keys in _KEYS:
        if set(keys) <= archive.members.keys():
            return keys
    names = sorted(archive.members)
    held = ", ".join(name[:60] for name in names[:_LISTED]) + f" and {len(names) - _LISTED} more" * (
        len(names) > _LISTED
    )
    wanted = ", or ".join(" and ".join(keys) for keys in _KEYS)
    raise DataError(f"{path}: holds {held or 'nothing'}; it must hold {wanted}.")
