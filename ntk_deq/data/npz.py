"""Read labelled images from a `.npz` file without trusting it: no pickles, sizes checked before anything is decoded."""

from __future__ import annotations

from pathlib import Path

from ntk_deq.archives import ArchiveError, ArrayArchive, open_archive
from ntk_deq.data.image_set import MAX_BYTES, ImageSet, checked_image_set
from ntk_deq.data.sniff import ZIP, describe, opening
from ntk_deq.errors import DataError, LimitError

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
