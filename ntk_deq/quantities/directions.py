"""Directions in parameter space: random ones scaled like the weights, and the principal ones of a walk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.quantities.objective import Values


class Normalisation(StrEnum):
    """How a random direction is scaled.

    Example:
        >>> Normalisation("filter") is Normalisation.FILTER
        True
    """

    FILTER = "filter"  # each slice along the first axis of a parameter has the norm of the model's; a vector is one
    PARAMETER = "parameter"  # each parameter has the norm of the model's
    NONE = "none"  # all together have the norm of the model's


def random_direction(values: Values, normalisation: Normalisation, generator: torch.Generator | None = None) -> Values:
    """Return a Gaussian direction, scaled to the parameters.

    Args:
        values: The parameters.
        normalisation: How.
        generator: Of the random numbers.

    Example:
        >>> W = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
        >>> found = random_direction({"W": W}, Normalisation.FILTER)["W"]
        >>> [round(norm, 5) for norm in found.norm(dim=1).tolist()]
        [5.0, 0.0]
    """
    drawn = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        for name, value in values.items()
    }
    if normalisation is Normalisation.NONE:
        size = math.sqrt(dot(values, values) / dot(drawn, drawn))
        return {name: size * value for name, value in drawn.items()}
    found = {}
    for name, value in values.items():
        axes = tuple(range(1, value.ndim)) if normalisation is Normalisation.FILTER and value.ndim > 1 else None
        own, norms = (torch.linalg.vector_norm(part, dim=axes, keepdim=True) for part in (value, drawn[name]))
        found[name] = drawn[name] * (own / norms.clamp(min=torch.finfo(value.dtype).tiny))
    return found


def moved(values: Values, directions: Sequence[Values], places: Sequence[float]) -> Values:
    """Return the parameters moved along directions; at zero they are the same numbers."""
    return {
        name: value + sum(place * direction[name] for place, direction in zip(places, directions, strict=True))
        for name, value in values.items()
    }


def dot(first: Values, second: Values) -> float:
    """Return the inner product over all parameters, in float64."""
    return sum(float((value.double() * second[name].double()).sum()) for name, value in first.items())


def cosine(first: Values, second: Values) -> float:
    """Return the cosine of the angle between two directions; 0 where one of them is zero."""
    size = math.sqrt(dot(first, first) * dot(second, second))
    return dot(first, second) / size if size > 0 else 0.0


def walked_values(values: Values, path: Iterable[Mapping[str, Tensor]]) -> list[Values]:
    """Return the differences of a path's points from the model."""
    found = []
    for number, point in enumerate(path):
        for name, value in point.items():
            if name not in values or value.shape != values[name].shape:
                raise ArgumentError(
                    f"`path` of landscape must hold parameters of the model: {', '.join(values)}, in their shapes. "
                    f"Got {name!r} of shape {tuple(value.shape)} at point {number}."
                )
        found.append(
            {name: (point[name].detach() - value if name in point else 0 * value) for name, value in values.items()}
        )
    if not any(dot(point, point) > 0 for point in found):
        raise ArgumentError("`path` of landscape must hold a point other than the model. Got none.")
    return found


def principal(
    values: Values, walked: Sequence[Values], dimensions: int
) -> tuple[tuple[Values, ...], tuple[float, ...]]:
    """Return the principal directions of differences from the model, and the shares of squares that they explain."""
    rows = torch.stack([torch.cat([part.reshape(-1).double() for part in point.values()]) for point in walked])
    _, sizes, axes = torch.linalg.svd(rows, full_matrices=False)
    if len(sizes) < dimensions or not sizes[dimensions - 1] > sizes[0] * 1e-12:  # far above the rounding of an SVD
        raise ArgumentError(
            f"`path` of landscape must span {dimensions} dimensions around the model. Its {len(walked)} points do not."
        )
    shares = (sizes.square() / sizes.square().sum())[:dimensions].tolist()
    found = []
    for axis in axes[:dimensions]:
        parts = axis.split([value.numel() for value in values.values()])
        found.append(
            {
                name: part.reshape(value.shape).to(value)
                for (name, value), part in zip(values.items(), parts, strict=True)
            }
        )
    return tuple(found), tuple(shares)


def projected(walked: Sequence[Values], directions: Sequence[Values]) -> tuple[Tensor, Tensor]:
    """Return the coordinates of differences along orthonormal directions, and the relative distances off them."""
    coordinates = torch.tensor([[dot(point, axis) for axis in directions] for point in walked], dtype=torch.float64)
    squares = torch.tensor([dot(point, point) for point in walked], dtype=torch.float64)
    off = (squares - coordinates.square().sum(dim=1)).clamp(min=0).sqrt()
    return coordinates, off / squares.max().sqrt()
