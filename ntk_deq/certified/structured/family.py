"""The structured matrices as a family of balls: which function runs which operation."""

from __future__ import annotations

from ntk_deq.certified.dispatch import Family, register_family
from ntk_deq.certified.structured import arithmetic, creation, functionals, spectra
from ntk_deq.certified.structured.base import MatrixBall, Structured, densified

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
    creation.diag,
    creation.kron,
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
