"""Large values in a NumPy archive beside an instance file; reading trusts nothing that the archive says of itself."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntk_deq.errors import DataError
from ntk_deq.files.archives import ArchiveError, open_archive, write_archive

ARCHIVE_MARK = b"values of an ntk_deq instance file"
"""What ends an archive, so that one without its instance file shows where it is from."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,150}\.npz")
_DIRECTORY = 2**20  # bytes that an archive may have beyond its arrays


def archive_bytes(values: Mapping[str, Tensor]) -> bytes:
    """Return an archive with the given float64 values."""
    stream = io.BytesIO()
    write_archive(stream, {name: value.numpy() for name, value in values.items()}, comment=ARCHIVE_MARK)
    return stream.getvalue()


def read_array(folder: Path, archive: str, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return one value of an archive.

    No pickle is opened and no header believed: type, order, shape and length must be those of float64 numbers in the
    expected shape, and no more bytes than these are decompressed.

    Args:
        folder: Folder of the instance file; the archive must lie in it and be no link.
        archive: Name of the archive.
        name: The variable.
        shape: The shape that it must have.

    Raises:
        DataError: The name is a path, or the archive is missing, damaged, or holds something else.
    """
    if not _NAME.fullmatch(archive):
        raise DataError(
            f"an archive must be the plain name of an .npz file in the folder of this file. Got {archive!r}."
        )
    path = folder / archive
    wanted = 8 * math.prod(shape)
    try:
        if path.is_symlink() or not path.is_file():
            raise DataError(f"there is no file {archive} beside this one, or it is a link.")
        if path.stat().st_size > 8 * wanted + _DIRECTORY and wanted > 0:
            raise DataError(f"{archive} is much larger than the values it should hold.")
        with open_archive(path) as opened:
            found = opened.header(name)
            if found.dtype != np.dtype("<f8") or found.fortran or found.shape != shape:
                raise DataError(
                    f"{archive} must hold float64 numbers of shape {shape}. Got {found.dtype}, shape "
                    f"{found.shape}{', columns first' if found.fortran else ''}."
                )
            return torch.from_numpy(opened.array(name, most=wanted))
    except (ArchiveError, OSError) as error:
        raise DataError(f"{archive} is damaged or holds no usable array {name!r}: {error}") from None
