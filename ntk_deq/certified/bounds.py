"""Upper bounds, as floats, of norms of a tensor's entries; what every radius is made of.

All sums run in float64, whatever the tensor's type. A norm of an exactly zero tensor is exactly zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntk_deq.certified.rounding import TINY, add_up, multiply_up, root_up, summation_up

_SAFE_LOW, _SAFE_HIGH = math.ldexp(1.0, -480), math.ldexp(1.0, 480)
# Between these, squares neither overflow (2^960 times any count of entries) nor lose more to underflow than the bound
# adds.


def all_finite(tensor: Tensor) -> bool:
    """Return whether no entry is NaN or infinite.

    One that is makes the sum so; a sum that overflows alone is looked at again. The sum is ten times as fast.

    Example:
        >>> all_finite(torch.full((3,), 1e308, dtype=torch.float64)), all_finite(torch.tensor([1.0, math.nan]))
        (True, False)
    """
    return math.isfinite(float(tensor.sum())) or bool(torch.isfinite(tensor).all())


def largest_entry(tensor: Tensor) -> float:
    """Return the largest absolute value of an entry, exactly; NaN where one is NaN.

    Example:
        >>> largest_entry(torch.tensor([[1.0, -2.0]]))
        2.0
    """
    low, high = torch.aminmax(tensor)  # one pass, and no copy
    return max(-float(low), float(high))


def power_of_two(largest: float) -> int:
    """Return the exponent e with 2^(e-1) <= largest < 2^e, or 0 for zero and for what is not finite.

    Example:
        >>> power_of_two(3.0), power_of_two(0.0)
        (2, 0)
    """
    return math.frexp(largest)[1] if largest and math.isfinite(largest) else 0


def times_power_of_two(tensor: Tensor, exponent: int) -> Tensor:
    """Return tensor * 2^exponent; exact unless an entry leaves the range of normal numbers.

    Args:
        tensor: Any shape.
        exponent: From -2200 to 2200; applied in steps, since 2^exponent alone may not be a double.

    Example:
        >>> times_power_of_two(torch.tensor([3.0], dtype=torch.float64), -1).item()
        1.5
    """
    while exponent:
        step = max(-1000, min(1000, exponent))
        tensor = tensor * math.ldexp(1.0, step)
        exponent -= step
    return tensor


def _from_norm(norm: float, entries: int) -> float:
    """Return an upper bound of the norm that was computed as `norm` without leaving the range."""
    # A rounded sum of rounded squares, and a rounded root: one rounding more for the square, two for the root.
    squares = summation_up(multiply_up(norm, norm), entries + 3)
    return root_up(add_up(squares, multiply_up(float(entries), TINY)))


def fro_up(tensor: Tensor) -> float:
    """Return an upper bound of the Frobenius norm.

    Example:
        >>> 5.0 <= fro_up(torch.tensor([[3.0, 4.0]])) < 5.0 + 1e-12
        True
    """
    work = tensor.double()
    norm = float(torch.linalg.vector_norm(work))
    if _SAFE_LOW < norm < _SAFE_HIGH:  # then no entry is so large that its square overflows
        return _from_norm(norm, work.numel())
    largest = largest_entry(work)
    if largest == 0:
        return 0.0
    if not math.isfinite(largest):
        return math.inf
    # Bring the largest entry to 1/2 or above. An entry that this pushes below 2^-1074 is lost: at most TINY each.
    exponent = power_of_two(largest)
    norm = float(torch.linalg.vector_norm(times_power_of_two(work, -exponent)))
    bound = add_up(_from_norm(norm, work.numel()), multiply_up(float(work.numel()), TINY))
    half = exponent // 2
    return multiply_up(bound, math.ldexp(1.0, half), math.ldexp(1.0, exponent - half))


def column_up(tensor: Tensor) -> float:
    """Return an upper bound of the one-norm, the largest absolute column sum.

    Example:
        >>> 4.0 <= column_up(torch.tensor([[1.0], [-3.0]])) < 4.0 + 1e-12
        True
    """
    sums = tensor.double().abs().sum(dim=0)
    return summation_up(float(sums.amax()), tensor.shape[0])


def row_up(tensor: Tensor) -> float:
    """Return an upper bound of the infinity-norm, the largest absolute row sum.

    Example:
        >>> 4.0 <= row_up(torch.tensor([[1.0, -3.0]])) < 4.0 + 1e-12
        True
    """
    return column_up(tensor.mT)
