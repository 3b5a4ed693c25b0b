"""Resize images by area mean."""

from __future__ import annotations

from numbers import Integral
from typing import TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError

_LARGEST_SIDE = 10_000  # one such image takes 0.8 GB


def resize_area(images: Float[Tensor, "N height width"], side: int) -> Float[Tensor, "N side side"]:
    """Resize images to side x side pixels; each new pixel is the mean over the area that it covers.

    `new = R image C'`, where row i of R holds the shares of the old rows in [i h/side, (i + 1) h/side), so that every
    row sums to one: means are kept, constants too, and a side that divides the old one gives plain block means.

    Args:
        images: The images, one a leading index.
        side: Number of pixels along either edge, >= 1.

    Raises:
        ArgumentError: `side` is no integer of 1 to 10000, or the images have no pixels.

    Example:
        >>> resize_area(torch.tensor([[[0.0, 1.0], [1.0, 2.0]]]), 1)
        tensor([[[1.]]])
    """
    check_side(side)
    if not isinstance(images, Tensor) or images.ndim != 3:
        raise ArgumentError(f"`images` to resize must be a tensor (N, height, width). Got {type(images).__name__}.")
    height, width = images.shape[1:]
    if height < 1 or width < 1:
        raise ArgumentError(f"`images` to resize must have pixels. Got height {height} and width {width}.")
    rows = _shares(height, side, like=images)
    return rows @ images @ _shares(width, side, like=images).T


def check_side(side: object) -> None:
    """Refuse a number of pixels that is none.

    Args:
        side: What was given.

    Raises:
        ArgumentError: It is no integer from 1 to 10000.

    Example:
        >>> check_side(2.5)
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `side` of an image must be an integer from 1 to 10000. Got 2.5.
    """
    if not is_integer(side) or not 1 <= side <= _LARGEST_SIDE:
        raise ArgumentError(f"`side` of an image must be an integer from 1 to {_LARGEST_SIDE}. Got {side!r:.60}.")


def is_integer(value: object) -> TypeGuard[int]:
    """Say whether a value is a whole number, of Python or of NumPy, and no truth value.

    Example:
        >>> is_integer(4), is_integer("4"), is_integer(True)
        (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def _shares(old: int, new: int, *, like: Tensor) -> Float[Tensor, "new old"]:
    """Return the share that each old pixel has in each new one.

    The overlaps are counted in units of 1/(old new), in integers, so that no pixel gains or loses from rounding.
    """
    start = torch.arange(new).unsqueeze(1) * old
    place = torch.arange(old).unsqueeze(0) * new
    overlap = torch.minimum(start + old, place + new) - torch.maximum(start, place)
    return overlap.clamp_min(0).to(like) / old
