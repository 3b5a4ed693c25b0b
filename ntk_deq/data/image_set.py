"""Labelled images as they come from a source, checked, before any choice or scaling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ntk_deq.errors import ArgumentError, DataError

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
