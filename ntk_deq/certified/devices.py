"""Where float64 arithmetic on a device cannot be trusted: reduced precision, emulated products, other surprises.

Every radius rests on `|fl(AB) - AB| <= n u |A||B|`. Libraries can be told to break it: matrix products in TF32, double
precision emulated on integer units (which rounds relative to the largest entry of a row), fast algorithms of Strassen's
kind. Settings that do so are looked up each time; what no setting shows is caught by one product with a known result.
"""

from __future__ import annotations

import functools
import os

import torch

from ntk_deq.certified.rounding import arithmetic_fault

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
