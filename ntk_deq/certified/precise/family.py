"""The operations on precise matrices, known to the dispatcher."""

from __future__ import annotations

from ntk_deq.certified.dispatch import Family, register_family
from ntk_deq.certified.precise import eigenvalues, elementwise, roots, spectra, sums
from ntk_deq.certified.precise.matrix import PreciseMatrix, adopt

_OPERATIONS = (
    elementwise.above,
    elementwise.absolute,
    elementwise.add,
    elementwise.as_scalar,
    elementwise.beside,
    elementwise.block,
    elementwise.compare_entries,
    elementwise.diag,
    elementwise.entry_max,
    elementwise.entry_min,
    elementwise.hadamard,
    elementwise.kron,
    elementwise.matmul,
    elementwise.negate,
    elementwise.relu,
    elementwise.scale,
    elementwise.step,
    elementwise.subtract,
    elementwise.transpose,
    elementwise.vec,
    roots.pinv,
    roots.sqrtm,
    sums.determinant,
    sums.entry_sum,
    sums.frobenius,
    sums.inverse,
    sums.norm1,
    sums.norminf,
    sums.solve,
    sums.trace,
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
