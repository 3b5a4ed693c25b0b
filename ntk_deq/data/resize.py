"""Resize images by area mean."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError


def resize_area(images: Float[Tensor, "N height width"], side: int) -> Float[Tensor, "N side side"]:
    """Resize images to side x side pixels; each new pixel is the mean over the area that it covers.

    `new = R image C'`, where row i of R holds the shares of the old rows in [i h/side, (i + 1) h/side), so that every
    row sums to one: means are kept, constants too, and a side that divides the old one gives plain block means.

    Args:
        images: The images, one a leading index.
        side: Number of pixels along either edge, >= 1.

    Raises:
        ArgumentError: `side` is below one, or the images have no pixels.

    Example:
        >>> resize_area(torch.tensor([[[0.0, 1.0], [1.0, 2.0]]]), 1)
        tensor([[[1.]]])
    """
    if side < 1:
        raise ArgumentError(f"`side` of an image must be an integer >= 1. Got {side}.")
    height, width = images.shape[1:]
    if height < 1 or width < 1:
        raise ArgumentError(f"`images` to resize must have pixels. Got height {height} and width {width}.")
    rows = _shares(height, side, like=images)
    return rows @ images @ _shares(width, side, like=images).T


def _shares(old: int, new: int, *, like: Tensor) -> Float[Tensor, "new old"]:
    """Return the share that each old pixel has in each new one.

    The overlaps are counted in units of 1/(old new), in integers, so that no pixel gains or loses from rounding.
    """
    start = torch.arange(new).unsqueeze(1) * old
    place = torch.arange(old).unsqueeze(0) * new
    overlap = torch.minimum(start + old, place + new) - torch.maximum(start, place)
    return overlap.clamp_min(0).to(like) / old
