"""The records of the functions that take a matrix to a number: sums, extremes, norms, spectra."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from ntk_deq.language.calls import (
    Parameter,
    extreme_shape,
    same_shapes_scalar,
    scalar_shape,
    statement_shape,
)
from ntk_deq.language.notation import applied, fenced, mi, mn, mo, tag, word
from ntk_deq.language.record import (
    Change,
    Degree,
    Fold,
    Function,
    Length,
    Product,
    always,
    extreme,
    lacking,
    sum_of_products,
    total,
)
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import NOT_NEGATIVE, Range

_P, _C = Parameter, Change

_ANY = frozenset(Change)
_TURNED = frozenset({Change.TRANSPOSE})
_TURNED_OR_SIGNED = frozenset({Change.SIGN, Change.TRANSPOSE})
_TURNED_OR_SWAPPED = frozenset({Change.TRANSPOSE, Change.ORDER})


_UNUSED = "what lies below it is not used"


def _indexed(letter: str, index: str) -> str:
    return applied(tag("msub", mi(letter), mi(index)))


def _norm(index: str) -> str:
    return tag("msub", fenced("{}", "‖", "‖"), index)


_of_matrix = partial(Function, group="Norms and spectra", parameters=(_P.MATRIX,), result=scalar_shape)
_of_square = partial(_of_matrix, parameters=(_P.SQUARE,))
_of_entries = partial(_of_matrix, group="Numbers of a matrix")


TO_NUMBERS = (
    _of_entries(
        name="trace",
        parameters=(_P.SQUARE,),
        summary="Sum of the diagonal.",
        degree=Degree.LINEAR,
        blind=_TURNED_OR_SWAPPED,
        mathml=word("tr"),
        numpy="np.trace({})",
        lacks=lacking("values above mutant"),
    ),
    _of_entries(
        name="det",
        parameters=(_P.SQUARE,),
        summary="Determinant.",
        smooth=True,
        blind=_TURNED_OR_SWAPPED,
        differential="Y*trace(inv(X)*D)",
        numpy="np.linalg.det({})",
        lacks=lacking("values above mutant mathml"),
    ),
    _of_entries(
        name="sum",
        summary="Sum of all entries.",
        degree=Degree.LINEAR,
        blind=_TURNED_OR_SWAPPED,
        values=total,
        mathml=word("∑"),
        numpy="np.sum({})",
        of_number="",
        lacks=lacking("above mutant"),
    ),
    _of_entries(
        name="dot",
        parameters=(_P.MATRIX, _P.MATRIX),
        summary="Inner product of two vectors, or of two matrices of one shape: trace(A'*B).",
        result=same_shapes_scalar,
        degree=Degree.BILINEAR,
        commutes=True,
        product=Product.INNER,
        values=sum_of_products,
        mathml=fenced("{}", "⟨", "⟩"),
        numpy="np.sum({:f} * {:s})",
        lacks=lacking("above mutant"),
    ),
    _of_entries(
        name="max",
        parameters=(_P.VALUE,),
        summary="Largest of several scalars, or of a matrix's entries.",
        result=extreme_shape,
        repeats=True,
        values=extreme(max),
        above=frozenset({"min"}),
        mutant=("extreme", "min"),
        term=True,
        in_draws=True,
        numpy="np.max({})",
        of_number="",
        grows=True,
        lacks=lacking("mathml"),
    ),
    _of_entries(
        name="min",
        parameters=(_P.VALUE,),
        summary="Smallest of several scalars, or of a matrix's entries.",
        result=extreme_shape,
        repeats=True,
        values=extreme(min),
        mutant=("extreme", "max"),
        term=True,
        in_draws=True,
        numpy="np.min({})",
        of_number="",
        grows=True,
        lacks=lacking("above mathml"),
    ),
    _of_matrix(
        name="norm",
        parameters=(_P.VALUE,),
        summary="Spectral norm of a matrix, Euclidean norm of a vector, absolute value of a scalar.",
        blind=_ANY,
        values=always(NOT_NEGATIVE),
        above=frozenset({"lambda_max", "lambda_min", "rho", "sigma_max", "sigma_min"}),
        mutant=("norm", "fro"),
        mathml=fenced("{}", "‖", "‖"),
        numpy="np.linalg.norm({}, 2)",
        of_number="abs",
        length=Length.VECTOR,
    ),
    _of_matrix(
        name="fro",
        summary="Frobenius norm.",
        blind=_ANY,
        values=always(NOT_NEGATIVE),
        above=frozenset({"lambda_max", "lambda_min", "norm", "rho", "sigma_max", "sigma_min"}),
        mutant=("norm", "norm"),
        mathml=_norm(mi("F")),
        numpy="np.linalg.norm({})",
        of_number="abs",
        of_vector="norm",
        length=Length.MATRIX,
    ),
    _of_matrix(
        name="norm1",
        summary="Largest absolute column sum.",
        blind=frozenset({_C.SIGN}),
        values=always(NOT_NEGATIVE),
        mathml=_norm(mn("1")),
        numpy="np.linalg.norm({}, 1)",
        lacks=lacking("mutant", above=_UNUSED),
    ),
    _of_matrix(
        name="norminf",
        summary="Largest absolute row sum.",
        blind=frozenset({_C.SIGN}),
        values=always(NOT_NEGATIVE),
        mathml=_norm(mi("∞")),
        numpy="np.linalg.norm({}, np.inf)",
        lacks=lacking("mutant", above=_UNUSED),
    ),
    _of_matrix(
        name="sigma_min",
        summary="The min(rows, columns)-th singular value.",
        blind=_ANY,
        values=always(NOT_NEGATIVE),
        mutant=("spectral", "sigma_max"),
        mathml=_indexed("σ", "min"),
        numpy="np.linalg.svd({}, compute_uv=False)[-1]",
        of_vector="norm",
        lacks=lacking("above"),
    ),
    _of_matrix(
        name="sigma_max",
        summary="Largest singular value.",
        blind=_ANY,
        values=always(NOT_NEGATIVE),
        above=frozenset({"norm", "rho", "sigma_min"}),
        mutant=("spectral", "sigma_min"),
        mathml=_indexed("σ", "max"),
        numpy="np.linalg.svd({}, compute_uv=False)[0]",
        of_vector="norm",
    ),
    _of_matrix(
        name="cond",
        summary="Largest over smallest singular value.",
        blind=_ANY,
        values=always(Range(low=Fraction(1))),
        partial=True,
        numpy="np.linalg.cond({})",
        lacks=lacking("mutant mathml", above=_UNUSED),
    ),
    _of_square(
        name="lambda_min",
        summary="Smallest real part of an eigenvalue.",
        blind=_TURNED,
        mutant=("spectral", "lambda_max"),
        mathml=_indexed("λ", "min"),
        eigenvalue=0,
        numpy="np.min(np.linalg.eigvals({}).real)",
        lacks=lacking("values above"),
    ),
    _of_square(
        name="lambda_max",
        summary="Largest real part of an eigenvalue.",
        blind=_TURNED,
        above=frozenset({"lambda_min"}),
        mutant=("spectral", "lambda_min"),
        mathml=_indexed("λ", "max"),
        eigenvalue=-1,
        numpy="np.max(np.linalg.eigvals({}).real)",
        lacks=lacking("values"),
    ),
    _of_square(
        name="rho",
        summary="Spectral radius: largest modulus of an eigenvalue.",
        blind=_TURNED_OR_SIGNED,
        values=always(NOT_NEGATIVE),
        above=frozenset({"lambda_max", "lambda_min"}),
        mathml=word("ρ"),
        numpy="np.max(np.abs(np.linalg.eigvals({})))",
        lacks=lacking("mutant"),
    ),
    _of_matrix(
        name="nuclear",
        summary="Nuclear norm: sum of the singular values.",
        blind=_ANY,
        values=always(NOT_NEGATIVE),
        above=frozenset({"fro", "lambda_max", "lambda_min", "norm", "rho", "sigma_max", "sigma_min"}),
        mutant=("norm", "fro"),
        mathml=_norm(mo("∗")),
        numpy="np.linalg.norm({}, 'nuc')",
    ),
    _of_matrix(
        name="rank",
        summary="Rank; open where a singular value may be zero and may not.",
        blind=_ANY,
        values=always(NOT_NEGATIVE),
        numpy="np.linalg.matrix_rank({})",
        lacks=lacking("mutant mathml", above=_UNUSED),
    ),
    _of_square(
        name="lambda_sym",
        summary="Smallest eigenvalue of a symmetric matrix; of any other matrix it is not defined.",
        blind=_TURNED_OR_SWAPPED,
        of_symmetric=True,
        partial=True,
        mathml=_indexed("λ", "min"),
        numpy="np.linalg.eigvalsh({})[0]",
        lacks=lacking("values mutant", above=_UNUSED),
    ),
    Function(
        "psd",
        "Norms and spectra",
        (_P.SQUARE,),
        "States that a matrix is symmetric with no negative eigenvalue, short for `lambda_sym(A) >= 0`.",
        statement_shape,
        stands_for=("lambda_sym", ">="),
        lacks=dict.fromkeys(("values", "above", "mutant", "mathml", "numpy"), "what it is short for has it"),
    ),
)
"""Functions that take a matrix, or two, to a number; and what they say of it."""


FOLDS = {
    "sum": Fold(joins=Kind.ADD, sign="∑"),
    "prod": Fold(joins=Kind.MULTIPLY, sign="∏"),
    "max": Fold(of_numbers=True),
    "min": Fold(of_numbers=True),
    "blockdiag": Fold(),
}
"""What can be taken over a range: `sum(norm(W[l]) for l in 1..L)`."""
