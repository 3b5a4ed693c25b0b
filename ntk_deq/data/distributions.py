"""Random tensors by name: the distributions of the claim language, drawn on the CPU in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk_deq.certified.rounding import add_up, multiply_up, root_up, unit_roundoff
from ntk_deq.data.samples import (
    Freedom,
    Sample,
    constant,
    distance_to_orthonormal_pairs,
    distance_to_orthonormal_rows,
    distance_to_unit_rows,
    error_of,
    gram,
    halved_sum,
    multiplied,
    outer,
)
from ntk_deq.errors import ArgumentError, LimitError, nearest_name
from ntk_deq.evaluation.instance import MAX_ENTRIES
from ntk_deq.language.domain import DISTRIBUTIONS

Shape = tuple[int, ...]
Sampler = Callable[[Shape, torch.Generator], Tensor]
"""Draws one tensor of the shape given: () a scalar, (m,) a vector, (d, m) a matrix."""


@dataclass(frozen=True)
class Distribution:
    """A sampler that also knows how far from a draw an exact one is.

    Attributes:
        sample: Draws one tensor of a shape, with that distance.
    """

    sample: Callable[[Shape, torch.Generator], Sample]

    def __call__(self, shape: Shape, generator: torch.Generator) -> Tensor:
        """Draw one tensor."""
        return self.sample(shape, generator).value


def draw(name: str, *parameters: float | Sampler, shape: Shape, generator: torch.Generator) -> Tensor:
    """Draw one tensor from a distribution of the claim language.

    Args:
        name: One of `ntk_deq.data.DISTRIBUTIONS`.
        *parameters: As listed there; a parameter called `distribution` is a `Sampler`.
        shape: `()`, `(m,)` or `(d, m)`.
        generator: A CPU generator; nothing else is a source of randomness.

    Returns:
        A float64 tensor on the CPU.

    Raises:
        ArgumentError: Unknown name, wrong parameters, or a shape that the distribution does not have.
        LimitError: More than `MAX_ENTRIES` entries.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> X = draw("orthonormal_rows", shape=(2, 5), generator=g)
        >>> bool(torch.allclose(X @ X.T, torch.eye(2, dtype=torch.float64)))
        True
        >>> draw("nonnegative", sampler("normal", 0.0, 0.25), shape=(3,), generator=g).shape
        torch.Size([3])
    """
    return sampler(name, *parameters)(shape, generator)


def sampler(name: str, *parameters: float | Sampler) -> Distribution:
    """Return a distribution as a function of shape and generator, its parameters checked now.

    Args:
        name: One of `ntk_deq.data.DISTRIBUTIONS`.
        *parameters: As listed there.

    Raises:
        ArgumentError: Unknown name or wrong parameters.

    Example:
        >>> sampler("ones")((2,), torch.Generator())
        tensor([1., 1.], dtype=torch.float64)
    """
    if name not in DISTRIBUTIONS:
        near = nearest_name(name, DISTRIBUTIONS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise ArgumentError(f"Unknown distribution {name!r}. Known ones: {', '.join(DISTRIBUTIONS)}.{hint}")
    entry = DISTRIBUTIONS[name]
    if len(parameters) != len(entry.parameters):
        raise ArgumentError(
            f"Distribution `{name}` takes {len(entry.parameters)} parameter(s), as in `{entry.usage}`. "
            f"Got {len(parameters)}."
        )
    for parameter, value in zip(entry.parameters, parameters, strict=True):
        _check_parameter(name, parameter, value)
    if name == "uniform" and parameters[0] > parameters[1]:  # type: ignore[operator]  # both are numbers by now
        raise ArgumentError(f"`uniform(low, high)` needs low <= high. Got {parameters[0]} and {parameters[1]}.")
    return Distribution(lambda shape, generator: _checked(name, parameters, shape, generator))


def _check_parameter(name: str, parameter: str, value: float | Sampler) -> None:
    """Refuse a value that the parameter called `parameter` cannot have."""
    if parameter == "distribution":
        if not callable(value):
            raise ArgumentError(f"`{parameter}` of {name} must be a distribution, such as normal(0, 1). Got {value!r}.")
        return
    if callable(value) or isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ArgumentError(f"`{parameter}` of {name} must be a finite number. Got {value!r}.")
    if parameter == "variance" and value < 0:
        raise ArgumentError(f"`variance` of {name} must be a number >= 0. Got {value}.")
    if parameter == "r" and (value < 0 or value != int(value)):
        raise ArgumentError(f"`r` of {name} must be an integer >= 0. Got {value}.")


def _checked(name: str, parameters: tuple[float | Sampler, ...], shape: Shape, generator: torch.Generator) -> Sample:
    """Check shape and generator, then draw."""
    if len(shape) > 2 or any(size < 0 for size in shape):
        raise ArgumentError(f"A draw from {name} is a scalar, a vector or a matrix of sizes >= 0. Got shape {shape}.")
    if math.prod(shape) > MAX_ENTRIES:
        raise LimitError(
            f"A draw from {name} of shape {shape} would have {math.prod(shape)} entries; at most {MAX_ENTRIES}."
        )
    if generator.device.type != "cpu":
        raise ArgumentError(
            f"`generator` of a draw must live on the CPU, so that seeds mean the same everywhere. "
            f"Got one on {generator.device}."
        )
    return _DRAWS[name](shape, generator, *parameters)


def _needs(name: str, shape: Shape, *, square: bool = False) -> None:
    """Refuse a shape that is no matrix, or no square one."""
    if len(shape) != 2 or (square and shape[0] != shape[1]):
        raise ArgumentError(f"`{name}` gives a {'square ' if square else ''}matrix only. Got shape {shape}.")


def _drawn(inner: Sampler, shape: Shape, generator: torch.Generator) -> Sample:
    """Draw from a parameter; of a function of the caller's every float is taken to be a draw."""
    if isinstance(inner, Distribution):
        return inner.sample(shape, generator)
    return Sample(inner(shape, generator), freedom=Freedom.WHOLE)


def _randn(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _gaussian(shape: Shape, generator: torch.Generator) -> Sample:
    return Sample(_randn(shape, generator), freedom=Freedom.WHOLE)


def _normal(shape: Shape, generator: torch.Generator, mean: float, variance: float) -> Sample:
    value = mean + math.sqrt(variance) * _randn(shape, generator)
    return Sample(value, freedom=Freedom.WHOLE) if variance else constant(value, mean)


def _half_normal(shape: Shape, generator: torch.Generator, variance: float) -> Sample:
    return Sample(
        _normal(shape, generator, 0.0, variance).value.abs(), freedom=Freedom.WHOLE if variance else Freedom.FIXED
    )


def _uniform(shape: Shape, generator: torch.Generator, low: float, high: float) -> Sample:
    value = low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)
    return Sample(value, freedom=Freedom.WHOLE) if low < high else constant(value, low)


def _rademacher(shape: Shape, generator: torch.Generator) -> Sample:
    return Sample(2.0 * torch.randint(0, 2, shape, generator=generator).to(torch.float64) - 1.0)


def _sphere(shape: Shape, generator: torch.Generator) -> Sample:
    if not shape:
        raise ArgumentError("`sphere` gives a matrix of unit rows or a unit vector. Got the shape () of a scalar.")
    rows = _unit_rows(shape, generator)
    return Sample(rows, distance_to_unit_rows(rows.reshape(-1, shape[-1])))


def _unit_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    rows = _randn(shape, generator)
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True)


def _orthonormal_rows(shape: Shape, generator: torch.Generator) -> Sample:
    """Draw from the Haar measure: QR of a Gaussian matrix, signs fixed by the diagonal of R."""
    _needs("orthonormal_rows", shape)
    if shape[0] > shape[1]:
        raise ArgumentError(
            f"`orthonormal_rows` needs N <= d: at most d rows of length d can be orthonormal. "
            f"Got N = {shape[0]}, d = {shape[1]}."
        )
    q, r = torch.linalg.qr(_randn((shape[1], shape[0]), generator))
    rows = (q * torch.where(torch.diagonal(r) < 0, -1.0, 1.0)).T.contiguous()
    return Sample(rows, distance_to_orthonormal_rows(rows))


def _orthogonal(shape: Shape, generator: torch.Generator) -> Sample:
    _needs("orthogonal", shape, square=True)
    return _orthonormal_rows(shape, generator)


def _identity(shape: Shape, generator: torch.Generator) -> Sample:
    _needs("identity", shape, square=True)
    return Sample(torch.eye(shape[0], dtype=torch.float64))


def _zeros(shape: Shape, generator: torch.Generator) -> Sample:
    return Sample(torch.zeros(shape, dtype=torch.float64))


def _ones(shape: Shape, generator: torch.Generator) -> Sample:
    return Sample(torch.ones(shape, dtype=torch.float64))


def _nonnegative(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    drawn = _drawn(inner, shape, generator)
    return replace(drawn, value=drawn.value.abs())


def _symmetric(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    _needs("symmetric", shape, square=True)
    return halved_sum(_drawn(inner, shape, generator), 1.0)


def _skew(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    _needs("skew", shape, square=True)
    return halved_sum(_drawn(inner, shape, generator), -1.0)


def _psd(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    _needs("psd", shape, square=True)
    return gram(_drawn(inner, shape, generator))


def _rank_one(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    _needs("rank_one", shape)
    left = _drawn(inner, shape[:1], generator)
    return outer(left, _drawn(inner, shape[1:], generator))


def _nilpotent(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    _needs("nilpotent", shape, square=True)
    drawn = _drawn(inner, shape, generator).at_most(Freedom.TIED)
    return replace(drawn, value=torch.triu(drawn.value, diagonal=1))


def _diagonal(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    _needs("diagonal", shape, square=True)
    drawn = _drawn(inner, shape[:1], generator).at_most(Freedom.TIED)
    return replace(drawn, value=torch.diag(drawn.value))


def _duplicates(shape: Shape, generator: torch.Generator, inner: Sampler) -> Sample:
    if not shape:
        raise ArgumentError("`duplicates` gives a matrix or a vector. Got the shape () of a scalar.")
    half = _drawn(inner, ((shape[0] + 1) // 2, *shape[1:]), generator).at_most(Freedom.TIED)
    value = half.value.repeat_interleave(2, dim=0)[: shape[0]].contiguous()
    return replace(half, value=value, radius=multiply_up(root_up(2.0), half.radius))


def _near_parallel(shape: Shape, generator: torch.Generator, eps: float) -> Sample:
    """Draw a unit row u and a unit row w orthogonal to it; the pair is u and cos(eps) u + sin(eps) w."""
    _needs("near_parallel", shape)
    rows, length = shape
    if length < 2 and rows > 1:
        raise ArgumentError(f"`near_parallel` needs d >= 2, for an angle between rows. Got shape {shape}.")
    pairs = (rows + 1) // 2
    first = _unit_rows((pairs, length), generator)
    second = _randn((pairs, length), generator)
    for _ in range(2):  # twice is enough for orthogonality to rounding (Kahan; Parlett 1980, section 6.9)
        second = second - (second * first).sum(dim=1, keepdim=True) * first
    second = second / torch.linalg.vector_norm(second, dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    turned = math.cos(eps) * first + math.sin(eps) * second
    value = torch.stack([first, turned], dim=1).reshape(2 * pairs, length)[:rows].contiguous()
    if rows < 2:
        return Sample(value, distance_to_unit_rows(value))
    # For u, w within e of an orthonormal pair: cos(eps) u + sin(eps) w is within e of the row that is meant, and off by
    # what cosine, sine and angle are; three roundings come on top, of numbers of size at most one.
    off = distance_to_orthonormal_pairs(first, second)
    angle = add_up(error_of(eps), multiply_up(8.0, unit_roundoff()))
    return Sample(value, add_up(multiply_up(root_up(2.0), off), multiply_up(angle, root_up(float(pairs)))))


def _low_rank(shape: Shape, generator: torch.Generator, inner: Sampler, r: float) -> Sample:
    _needs("low_rank", shape)
    left = _drawn(inner, (shape[0], int(r)), generator)
    right = _drawn(inner, (shape[1], int(r)), generator)
    return multiplied(left, replace(right, value=right.value.T))


_DRAWS: dict[str, Callable[..., Sample]] = {
    "normal": _normal,
    "half_normal": _half_normal,
    "uniform": _uniform,
    "rademacher": _rademacher,
    "gaussian": _gaussian,
    "sphere": _sphere,
    "orthonormal_rows": _orthonormal_rows,
    "orthogonal": _orthogonal,
    "identity": _identity,
    "zeros": _zeros,
    "ones": _ones,
    "nonnegative": _nonnegative,
    "symmetric": _symmetric,
    "skew": _skew,
    "psd": _psd,
    "rank_one": _rank_one,
    "nilpotent": _nilpotent,
    "diagonal": _diagonal,
    "duplicates": _duplicates,
    "near_parallel": _near_parallel,
    "low_rank": _low_rank,
}
