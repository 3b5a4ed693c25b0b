"""Matrix balls of arbitrary precision: arb entries, for instances that float64 balls leave undecided."""

from ntk_deq.certified.dispatch import Family, register_family
from ntk_deq.certified.precise import arithmetic, eigenvalues, spectra
from ntk_deq.certified.precise.matrix import (
    MAX_BITS,
    MAX_BITS_TOTAL,
    MAX_ENTRIES,
    MIN_BITS,
    PreciseMatrix,
    adopt,
    as_ball,
    check_bits,
    precise,
    working_precision,
)

__all__ = [
    "FAMILY",
    "MAX_BITS",
    "MAX_BITS_TOTAL",
    "MAX_ENTRIES",
    "MIN_BITS",
    "PreciseMatrix",
    "adopt",
    "as_ball",
    "check_bits",
    "precise",
    "working_precision",
]

_OPERATIONS = (
    arithmetic.above,
    arithmetic.absolute,
    arithmetic.add,
    arithmetic.as_scalar,
    arithmetic.beside,
    arithmetic.block,
    arithmetic.compare_entries,
    arithmetic.diag,
    arithmetic.entry_max,
    arithmetic.entry_min,
    arithmetic.hadamard,
    arithmetic.kron,
    arithmetic.matmul,
    arithmetic.negate,
    arithmetic.relu,
    arithmetic.scale,
    arithmetic.step,
    arithmetic.subtract,
    arithmetic.transpose,
    arithmetic.vec,
    eigenvalues.pinv,
    eigenvalues.sqrtm,
    arithmetic.determinant,
    arithmetic.entry_sum,
    arithmetic.frobenius,
    arithmetic.inverse,
    arithmetic.norm1,
    arithmetic.norminf,
    arithmetic.solve,
    arithmetic.trace,
    spectra.eigenvalues_symmetric,
    spectra.sigma_max,
    spectra.sigma_min,
    spectra.singular_values,
    spectra.spectral_norm,
    eigenvalues.lambda_max,
    eigenvalues.lambda_min,
    eigenvalues.lambda_min_at_least,
    eigenvalues.lambda_min_below,
    eigenvalues.rho,
)

FAMILY = Family(PreciseMatrix, adopt, table={operation.__name__: operation for operation in _OPERATIONS})
"""An operation that meets a precise matrix adopts its other matrices; there is no way back to floats."""

register_family(FAMILY, first=True)
