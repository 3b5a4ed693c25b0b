"""Read labelled images from a `.npz` file without trusting it: no pickles, sizes checked before anything is decoded."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from ntk_deq.data.image_set import MAX_BYTES, ImageSet, checked_image_set
from ntk_deq.data.sniff import ZIP, describe, opening
from ntk_deq.errors import DataError, LimitError

_KEYS = (("X", "y"), ("images", "labels"), ("x_train", "y_train"))


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
        keys = _check_directory(path)
        with np.load(path, allow_pickle=False) as archive:
            images, labels = archive[keys[0]], archive[keys[1]]
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise DataError(f"{path}: the archive is damaged or of a kind that cannot be read ({error}).") from None
    return checked_image_set(images, labels, name=str(path))


def _check_directory(path: Path) -> tuple[str, str]:
    """Check total size, names and array headers; return the names of the images and of the labels."""
    with zipfile.ZipFile(path) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > MAX_BYTES:
            raise LimitError(f"{path}: its arrays would take {total} bytes once decompressed; at most {MAX_BYTES}.")
        names = [member.filename.removesuffix(".npy") for member in archive.infolist()]
        for keys in _KEYS:
            if set(keys) <= set(names):
                for key in keys:
                    _check_header(archive, key, path)
                return keys
    wanted = ", or ".join(" and ".join(keys) for keys in _KEYS)
    raise DataError(f"{path}: holds {', '.join(sorted(names)) or 'nothing'}; it must hold {wanted}.")


def _check_header(archive: zipfile.ZipFile, key: str, path: Path) -> None:
    """Refuse an array of objects or text, and one whose header promises another size than the archive stores."""
    names = archive.namelist()
    member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in names else key)
    with archive.open(member) as stream:
        first = stream.read(6)
        if first != np.lib.format.MAGIC_PREFIX:
            raise DataError(f"{path}: array {key!r} is not in NumPy's format; it {describe(first)}.")
    with archive.open(member) as stream:
        shape, dtype = _header(stream)
        offset = stream.tell()
    if dtype.hasobject:
        raise DataError(f"{path}: array {key!r} holds Python objects, which are never opened: they could run code.")
    if dtype.kind not in "uifb":
        raise DataError(f"{path}: array {key!r} must hold integers or floats. Got dtype {dtype}.")
    expected = math.prod(shape) * dtype.itemsize
    if offset + expected != member.file_size:
        raise DataError(
            f"{path}: the header of array {key!r} promises shape {shape}, {expected} bytes. "
            f"Found {member.file_size - offset}."
        )


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype
