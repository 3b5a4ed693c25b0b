"""Balls for scalars and matrices: every result carries a bound on its distance from the truth."""

from ntk_deq.certified.arithmetic import add, hadamard, negate, scale, subtract
from ntk_deq.certified.ball import Ball, as_scalar, ball, from_scalar
from ntk_deq.certified.comparison import EntryComparison, compare_entries
from ntk_deq.certified.eigenvalues import lambda_max, lambda_min, rho
from ntk_deq.certified.functions import (
    absolute_value,
    divide,
    exponential,
    logarithm,
    maximum,
    minimum,
    multiply,
    power,
    square_root,
)
from ntk_deq.certified.norms import (
    determinant,
    entry_max,
    entry_min,
    entry_sum,
    frobenius,
    norm1,
    norminf,
    trace,
)
from ntk_deq.certified.products import kron, matmul
from ntk_deq.certified.scalar import (
    exact,
    from_bounds,
    from_strings,
    is_true,
    lower,
    nan,
    radius,
    to_strings,
    upper,
    with_radius,
)
from ntk_deq.certified.solve import inverse, solve
from ntk_deq.certified.spectra import eigenvalues_symmetric, sigma_max, sigma_min, singular_values, spectral_norm
from ntk_deq.certified.structure import absolute, commutation, diag, identity, relu, step, transpose, vec

ESTIMATED: frozenset[str] = frozenset()
"""Names of functions whose error bound is an estimate only; none at present."""

__all__ = [
    "ESTIMATED",
    "Ball",
    "EntryComparison",
    "absolute",
    "absolute_value",
    "add",
    "as_scalar",
    "ball",
    "commutation",
    "compare_entries",
    "determinant",
    "diag",
    "divide",
    "eigenvalues_symmetric",
    "entry_max",
    "entry_min",
    "entry_sum",
    "exact",
    "exponential",
    "frobenius",
    "from_bounds",
    "from_scalar",
    "from_strings",
    "hadamard",
    "identity",
    "inverse",
    "is_true",
    "kron",
    "lambda_max",
    "lambda_min",
    "logarithm",
    "lower",
    "matmul",
    "maximum",
    "minimum",
    "multiply",
    "nan",
    "negate",
    "norm1",
    "norminf",
    "power",
    "radius",
    "relu",
    "rho",
    "scale",
    "sigma_max",
    "sigma_min",
    "singular_values",
    "solve",
    "spectral_norm",
    "square_root",
    "step",
    "subtract",
    "to_strings",
    "trace",
    "transpose",
    "upper",
    "vec",
    "with_radius",
]
