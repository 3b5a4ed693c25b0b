"""Upper and lower bounds by float arithmetic in round-to-nearest: each result moves outward by one unit.

A sum, product, quotient or root rounded to nearest differs from the true one by at most half a unit in the last place,
underflow included, so the next float outward bounds it. Assumes IEEE 754 double arithmetic; `arithmetic_fault` looks
at the calling thread for the two ways in which foreign libraries break it.

Upper bounds, as floats, of norms of a tensor's entries; what every radius is made of.

All sums run in float64, whatever the tensor's type. A norm of an exactly zero tensor is exactly zero.

Where float64 arithmetic on a device cannot be trusted: reduced precision, emulated products, other surprises.

Every radius rests on `|fl(AB) - AB| <= n u |A||B|`. Libraries can be told to break it: matrix products in TF32, double
precision emulated on integer units (which rounds relative to the largest entry of a row), fast algorithms of Strassen's
kind. Settings that do so are looked up each time; what no setting shows is caught by one product with a known result.
"""

from __future__ import annotations

import functools
import math
import os

import torch
from torch import Tensor

TINY = math.ldexp(1.0, -1074)
"""The smallest positive double, which bounds the error of one operation that underflows."""

_HALF, _SMALLEST_NORMAL, _HALF_ULP = 0.5, math.ldexp(1.0, -1022), math.ldexp(1.0, -53)
_ONE = 1.0


def unit_roundoff() -> float:
    """Return the largest relative error of rounding a float64 to nearest.

    Example:
        >>> unit_roundoff() == 2.0**-53
        True
    """
    return torch.finfo(torch.float64).eps / 2


def arithmetic_fault() -> str:
    """Return what is wrong with this thread's float arithmetic, or "" where it is as IEEE 754 has it.

    Example:
        >>> arithmetic_fault()
        ''
    """
    if _SMALLEST_NORMAL * _HALF == 0.0:
        return "subnormal numbers are flushed to zero in this process"
    if _ONE + _HALF_ULP != _ONE or -_ONE - _HALF_ULP != -_ONE:
        return "the processor does not round to nearest"
    return ""


def outward(value: float) -> float:
    """Return a float that bounds the true value of one operation whose rounded, nonnegative result is `value`.

    Example:
        >>> outward(1.0) > 1.0
        True
    """
    return math.nextafter(value, math.inf)


def add_up(*values: float) -> float:
    """Return an upper bound of a sum of nonnegative floats, exact where at most one is not zero; NaN is infinite.

    Example:
        >>> add_up(0.0, 0.25), add_up(0.1, 0.2) > 0.3
        (0.25, True)
    """
    total = 0.0
    for value in values:
        if value:
            total = outward(total + value) if total else value
    return math.inf if math.isnan(total) else total


def multiply_up(*values: float) -> float:
    """Return an upper bound of a product of nonnegative floats; infinite where one is infinite or NaN, zero or not.

    Example:
        >>> multiply_up(0.0, 3.0), multiply_up(0.0, float("inf")), multiply_up(1e-200, 1e-200) > 0
        (0.0, inf, True)
    """
    if not all(map(math.isfinite, values)):
        return math.inf
    if not all(values):
        return 0.0
    total = values[0]
    for value in values[1:]:
        total = outward(total * value)
    return total


def divide_up(numerator: float, denominator: float) -> float:
    """Return an upper bound of a quotient of nonnegative floats; infinite where the denominator is not positive.

    Example:
        >>> divide_up(0.0, 2.0), divide_up(1.0, 0.0)
        (0.0, inf)
    """
    if not (math.isfinite(numerator) and denominator > 0):
        return math.inf
    return outward(numerator / denominator) if numerator else 0.0


def root_up(value: float) -> float:
    """Return an upper bound of a square root.

    Example:
        >>> root_up(0.0), root_up(2.0) ** 2 > 2
        (0.0, True)
    """
    if not value >= 0:
        return math.inf
    return outward(math.sqrt(value)) if value else 0.0


def subtract_down(left: float, right: float) -> float:
    """Return a lower bound of left - right; -inf where either is not finite.

    Example:
        >>> subtract_down(1.0, 0.0), subtract_down(1.0, 0.1) < 0.9
        (1.0, True)
    """
    if not (math.isfinite(left) and math.isfinite(right)):
        return -math.inf
    return math.nextafter(left - right, -math.inf) if right else left


def summation_up(computed: float, terms: int) -> float:
    """Return an upper bound of a sum of nonnegative doubles that was computed in any order.

    With n terms, computed >= true (1 - (n - 1) u), and 1/(1 - t) <= 1 + 2 t for t <= 1/2. Sums do not underflow.

    Args:
        computed: The rounded sum.
        terms: Number of terms, or of roundings that one term passes through.

    Example:
        >>> summation_up(1.0, 1) >= 1.0
        True
    """
    slack = terms * unit_roundoff()
    return multiply_up(computed, outward(1.0 + 2.0 * slack)) if slack < 0.5 else math.inf


SAFE_LOW, SAFE_HIGH = math.ldexp(1.0, -480), math.ldexp(1.0, 480)
"""Between these, squares neither overflow (2^960 times any count of entries) nor lose more to underflow than the bound
adds."""


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
    if SAFE_LOW < norm < SAFE_HIGH:  # then no entry is so large that its square overflows
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


_EMULATION = "CUBLAS_EMULATE_DOUBLE_PRECISION"
_STRATEGY = "CUBLAS_EMULATION_STRATEGY"

_ORDER = 128
_BITS = 22  # two entries of 22 bits multiply to 44 bits; 128 such products add up to at most 51 bits
_FAR = 400  # exponents this far apart fit no fixed-point format, but squares of 2^400 stay within the range


def _emulation_fault() -> str:
    switched = os.environ.get(_EMULATION, "").strip()
    if switched not in ("", "0"):
        return f"float64 products are emulated ({_EMULATION}={switched}); unset it"
    strategy = os.environ.get(_STRATEGY, "").strip()
    if strategy and switched != "0":
        return f"float64 products may be emulated ({_STRATEGY}={strategy}); unset it or set {_EMULATION}=0"
    return ""


def _reduced_precision() -> str:
    """Return the reduced format that matrix products on CUDA are allowed, or ""."""
    settings = torch.backends.cuda.matmul
    # torch 2.9 replaced `allow_tf32` by `fp32_precision`, and refuses to read the old one where the new one is set.
    precision = getattr(settings, "fp32_precision", None)
    if precision is None:
        return "tf32" if settings.allow_tf32 else ""
    return "" if precision in ("none", "ieee") else str(precision)


def _cuda_fault() -> str:
    precision = _reduced_precision()
    if precision:
        return f"matrix products on CUDA may use {precision}; set torch.backends.cuda.matmul.fp32_precision = 'ieee'"
    return _emulation_fault()


def _known_product() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return two float64 matrices and their product, which float arithmetic in any order gets without an error.

    Rows and columns differ by powers of two up to 2^800, and one column of huge entries meets a row of zeros: their
    largest entries say nothing about the result, in which fixed-point formats and block recursions lose it.
    """
    generator = torch.Generator().manual_seed(7)
    left, right = (torch.randint(1, 1 << _BITS, (_ORDER, _ORDER), generator=generator) for _ in range(2))
    left[:, 0] = 0
    whole = (left @ right).double()
    scales = torch.full((_ORDER,), 2.0**_FAR, dtype=torch.float64)
    scales[::2] = 2.0**-_FAR
    rows, cols = scales, scales.flip(0) ** 0.5
    a, b = left.double() * rows[:, None], right.double() * cols
    a[:, 0] = 2.0**_FAR
    b[0] = 0.0
    return a, b, whole * rows[:, None] * cols


@functools.cache
def probe(device: str) -> str:
    """Multiply two matrices with a known product on a device, and return what is wrong with the result, or "".

    Args:
        device: As PyTorch writes it, such as `cpu` or `cuda:0`. The answer is remembered.

    Example:
        >>> probe("cpu")
        ''
    """
    a, b, expected = _known_product()
    result = (a.to(device) @ b.to(device)).cpu()
    return "" if torch.equal(result, expected) else f"float64 products on {device} are not IEEE double precision"


def certification_fault(device: torch.device | str, dtype: torch.dtype = torch.float64) -> str:
    """Return why no bound computed on a device can be certified at present, or "".

    Args:
        device: The device.
        dtype: Element type of the data; balls compute in float64 whatever it is.

    Returns:
        The reason and what to change, or "" where float64 arithmetic is as IEEE 754 has it.

    Example:
        >>> certification_fault("cpu")
        ''
        >>> certification_fault("cpu", torch.float16)
        'balls hold float64 or float32, not float16'
    """
    if dtype not in (torch.float64, torch.float32):
        return f"balls hold float64 or float32, not {str(dtype).removeprefix('torch.')}"
    fault = arithmetic_fault()
    if fault:
        return fault
    where = str(device)
    kind = where.partition(":")[0]
    if kind == "cuda":
        fault = _cuda_fault()
        if fault:
            return fault
        if not torch.cuda.is_available():
            return "no CUDA device is available"
    elif kind != "cpu":
        return f"float64 arithmetic on {kind} devices has not been examined"
    return probe(where)
