"""Matrix balls that are never formed: diagonal, block-diagonal, Kronecker, and products of these.

`vec` stacks columns, so entry (n, j) of an N x m matrix is at n + N j, and kron(A', I(N)) is one block A' for each n.
"""

from ntk_deq.certified.dispatch import Family, register_family
from ntk_deq.certified.structured import arithmetic, functionals, spectra
from ntk_deq.certified.structured.blocks import (
    MAX_ENTRIES,
    Blocks,
    Diagonal,
    MatrixBall,
    Structured,
    densified,
    require_room,
)
from ntk_deq.certified.structured.functionals import LAZY_ENTRIES, diag, identity, kron, lazy_above
from ntk_deq.certified.structured.products import Chain, Kronecker

__all__ = [
    "LAZY_ENTRIES",
    "MAX_ENTRIES",
    "STRUCTURED",
    "Blocks",
    "Chain",
    "Diagonal",
    "Kronecker",
    "MatrixBall",
    "Structured",
    "densified",
    "diag",
    "identity",
    "kron",
    "lazy_above",
    "require_room",
]

_FUNCTIONS = (
    arithmetic.add,
    arithmetic.hadamard,
    arithmetic.inverse,
    arithmetic.matmul,
    arithmetic.negate,
    arithmetic.scale,
    arithmetic.solve,
    arithmetic.subtract,
    arithmetic.transpose,
    functionals.diag,
    functionals.kron,
    functionals.determinant,
    functionals.entry_max,
    functionals.entry_min,
    functionals.entry_sum,
    functionals.frobenius,
    functionals.norm1,
    functionals.norminf,
    functionals.trace,
    spectra.eigenvalues_symmetric,
    spectra.lambda_max,
    spectra.lambda_min,
    spectra.rho,
    spectra.sigma_max,
    spectra.sigma_min,
    spectra.singular_values,
)


def _as_it_is(value: MatrixBall) -> MatrixBall:
    return value


STRUCTURED = Family(
    kind=Structured,
    adopt=_as_it_is,
    dense=densified,
    table={function.__name__: function for function in _FUNCTIONS} | {"spectral_norm": spectra.sigma_max},
)
"""Operations without a rule of their own run on the dense forms, where these fit."""

register_family(STRUCTURED)
