"""An instance: one choice of sizes and values for every variable of a claim's setting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError, LimitError, nearest_name
from ntk_deq.language.types import Sort, Type

# 512 MiB of float64: far above what a dense singular value decomposition can treat, below the memory of any machine.
MAX_ENTRIES = 2**26


@dataclass(frozen=True)
class Instance:
    """Sizes and values.

    Attributes:
        setting: Name of the setting.
        family: What kind of instance it is, for people: `A = -identity, gamma = 0.5`.
        sizes: Size letters and their values.
        values: Float64 CPU tensors by name: 0-d for a scalar, (m,) for a vector, 2-d for a matrix.
        index: Number of the instance, which with the seed reproduces it.
        rounded: Variables whose floats stand for a value near them: of a domain or distribution that floats do not hit
            (orthogonal matrices, unit rows, products of low rank, 1/3), with an upper bound of the Frobenius distance.
            Where that is 0 the floats are the value, and what they are rounded to is not. All others are exact.
        solved: Variables whose values lie near a solution of the hypotheses that are equations; it is the solution that
            is meant.
    """

    setting: str
    family: str
    sizes: dict[str, int]
    values: dict[str, Tensor]
    index: int
    rounded: Mapping[str, float] = field(default_factory=dict)
    solved: frozenset[str] = field(default_factory=frozenset)


def shape_of(kind: Type, sizes: Mapping[str, int], *, name: str = "a variable") -> tuple[int, ...]:
    """Return the shape that a value of a type has: a vector, having one column by its type, is 1-d.

    Args:
        kind: Type of the value.
        sizes: Values of the size letters.
        name: The variable, for messages.

    Raises:
        ArgumentError: A size letter has no value, or the type is none of a value.
        LimitError: More than `MAX_ENTRIES` entries.

    Example:
        >>> from ntk_deq.language.types import matrix
        >>> shape_of(matrix("N"), {"N": 3}), shape_of(matrix("N", "d"), {"N": 3, "d": 1})
        ((3,), (3, 1))
    """
    if kind.sort is Sort.SCALAR:
        return ()
    if kind.sort is not Sort.MATRIX:
        raise ArgumentError(f"`{name}` must be a scalar, a vector or a matrix. Got {kind}.")
    missing = sorted((kind.rows.letters | kind.cols.letters) - set(sizes))
    if missing:
        raise ArgumentError(
            f"The size {', '.join(missing)} of `{name}` has no value; the setting's `sizes` must give it."
        )
    shape = tuple(size.evaluate(sizes) for size in kind.sizes)
    if math.prod(shape) > MAX_ENTRIES:
        raise LimitError(
            f"`{name}` would be {' x '.join(map(str, shape))}, {math.prod(shape)} entries; at most {MAX_ENTRIES}."
        )
    return shape


def with_values(instance: Instance, **replaced: Tensor | float) -> Instance:
    """Return the instance with some values replaced; the family's text stays.

    Args:
        instance: The instance.
        **replaced: New values by variable, each of the old one's shape.

    Raises:
        ArgumentError: The instance has no such variable, or the shape differs.

    Example:
        >>> i = Instance("s", "ones", {}, {"c": torch.tensor(1.0, dtype=torch.float64)}, 0)
        >>> with_values(i, c=0.5).values["c"].item()
        0.5
    """
    values = dict(instance.values)
    for name, value in replaced.items():
        if name not in values:
            near = nearest_name(name, values)
            hint = f" Did you mean {near!r}?" if near else ""
            raise ArgumentError(f"The instance has no variable {name!r}; it has {', '.join(values)}.{hint}")
        new = torch.as_tensor(value, dtype=torch.float64, device="cpu")
        if new.shape != values[name].shape:
            raise ArgumentError(f"`{name}` must keep its shape {tuple(values[name].shape)}. Got {tuple(new.shape)}.")
        values[name] = new
    return replace(instance, values=values)


def format_number(value: float) -> str:
    """Return a number as people write it: a whole number, a small power of two or one minus it, or a decimal.

    Example:
        >>> format_number(2.0**-20), format_number(1 - 2.0**-10), format_number(0.75), format_number(-3.0)
        ('2^-20', '1 - 2^-10', '0.75', '-3')
    """
    if _far_power(abs(value)):
        return f"{'-' if value < 0 else ''}2^{math.frexp(value)[1] - 1}"
    if 0 < value < 1 and _far_power(1 - value):
        return f"1 - 2^{math.frexp(1 - value)[1] - 1}"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _far_power(value: float) -> bool:
    """Say whether a number is a power of two that is clearer as such than in decimals."""
    mantissa, exponent = math.frexp(value)
    return mantissa == 0.5 and not -3 <= exponent - 1 <= 6
