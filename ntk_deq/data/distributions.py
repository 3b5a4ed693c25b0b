"""Random tensors by name: the distributions of the claim language, drawn on the CPU in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ntk_deq.data.distribution_names import DISTRIBUTIONS
from ntk_deq.errors import ArgumentError, LimitError, nearest_name

Shape = tuple[int, ...]
Sampler = Callable[[Shape, torch.Generator], Tensor]
"""Draws one tensor of the shape given: () a scalar, (m,) a vector, (d, m) a matrix."""

# 512 MiB of float64: far above what a dense singular value decomposition can treat, below the memory of any machine.
MAX_ENTRIES = 2**26


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


def sampler(name: str, *parameters: float | Sampler) -> Sampler:
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
    return partial(_checked, name, parameters)


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


def _checked(name: str, parameters: tuple[float | Sampler, ...], shape: Shape, generator: torch.Generator) -> Tensor:
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


def _randn(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _normal(shape: Shape, generator: torch.Generator, mean: float, variance: float) -> Tensor:
    return mean + math.sqrt(variance) * _randn(shape, generator)


def _half_normal(shape: Shape, generator: torch.Generator, variance: float) -> Tensor:
    return _normal(shape, generator, 0.0, variance).abs()


def _uniform(shape: Shape, generator: torch.Generator, low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _rademacher(shape: Shape, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, shape, generator=generator).to(torch.float64) - 1.0


def _sphere(shape: Shape, generator: torch.Generator) -> Tensor:
    if not shape:
        raise ArgumentError("`sphere` gives a matrix of unit rows or a unit vector. Got the shape () of a scalar.")
    rows = _randn(shape, generator)
    return rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True)


def _orthonormal_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    """Draw from the Haar measure: QR of a Gaussian matrix, signs fixed by the diagonal of R."""
    _needs("orthonormal_rows", shape)
    if shape[0] > shape[1]:
        raise ArgumentError(
            f"`orthonormal_rows` needs N <= d: at most d rows of length d can be orthonormal. "
            f"Got N = {shape[0]}, d = {shape[1]}."
        )
    q, r = torch.linalg.qr(_randn((shape[1], shape[0]), generator))
    return (q * torch.where(torch.diagonal(r) < 0, -1.0, 1.0)).T.contiguous()


def _orthogonal(shape: Shape, generator: torch.Generator) -> Tensor:
    _needs("orthogonal", shape, square=True)
    return _orthonormal_rows(shape, generator)


def _identity(shape: Shape, generator: torch.Generator) -> Tensor:
    _needs("identity", shape, square=True)
    return torch.eye(shape[0], dtype=torch.float64)


def _zeros(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _ones(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def _nonnegative(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    return inner(shape, generator).abs()


def _symmetric(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    _needs("symmetric", shape, square=True)
    drawn = inner(shape, generator)
    return (drawn + drawn.T) / 2


def _skew(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    _needs("skew", shape, square=True)
    drawn = inner(shape, generator)
    return (drawn - drawn.T) / 2


def _psd(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    _needs("psd", shape, square=True)
    drawn = inner(shape, generator)
    product = drawn.T @ drawn
    return (product + product.T) / 2  # a library product need not be symmetric to the last bit


def _rank_one(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    _needs("rank_one", shape)
    left = inner(shape[:1], generator)
    return torch.outer(left, inner(shape[1:], generator))


def _nilpotent(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    _needs("nilpotent", shape, square=True)
    return torch.triu(inner(shape, generator), diagonal=1)


def _diagonal(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    _needs("diagonal", shape, square=True)
    return torch.diag(inner(shape[:1], generator))


def _duplicates(shape: Shape, generator: torch.Generator, inner: Sampler) -> Tensor:
    if not shape:
        raise ArgumentError("`duplicates` gives a matrix or a vector. Got the shape () of a scalar.")
    half = inner(((shape[0] + 1) // 2, *shape[1:]), generator)
    return half.repeat_interleave(2, dim=0)[: shape[0]].contiguous()


def _near_parallel(shape: Shape, generator: torch.Generator, eps: float) -> Tensor:
    """Draw a unit row u and a unit row w orthogonal to it; the pair is u and cos(eps) u + sin(eps) w."""
    _needs("near_parallel", shape)
    rows, length = shape
    if length < 2 and rows > 1:
        raise ArgumentError(f"`near_parallel` needs d >= 2, for an angle between rows. Got shape {shape}.")
    pairs = (rows + 1) // 2
    first = _sphere((pairs, length), generator)
    second = _randn((pairs, length), generator)
    for _ in range(2):  # twice is enough for orthogonality to rounding (Kahan; Parlett 1980, section 6.9)
        second = second - (second * first).sum(dim=1, keepdim=True) * first
    second = second / torch.linalg.vector_norm(second, dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    turned = math.cos(eps) * first + math.sin(eps) * second
    return torch.stack([first, turned], dim=1).reshape(2 * pairs, length)[:rows].contiguous()


def _low_rank(shape: Shape, generator: torch.Generator, inner: Sampler, r: float) -> Tensor:
    _needs("low_rank", shape)
    left = inner((shape[0], int(r)), generator)
    return left @ inner((shape[1], int(r)), generator).T


_DRAWS: dict[str, Callable[..., Tensor]] = {
    "normal": _normal,
    "half_normal": _half_normal,
    "uniform": _uniform,
    "rademacher": _rademacher,
    "gaussian": _randn,
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
