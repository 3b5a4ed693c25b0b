"""The functions of the claim language: one record for each, which says what is true of it wherever it is asked for.

The records of functions of matrices, of derivatives and of the model are here. Those of functions of one number, which
act on a matrix entry by entry, are in `number_functions`, functions from a matrix to a number in `functionals`, pieces
in `pieces`. What computes them are their twins in `ntk_deq.evaluation.functions`.
"""

from __future__ import annotations

from collections.abc import Callable

from ntk_deq.language.calls import (
    Call,
    Parameter,
    commutation_shape,
    diag_shape,
    filled_shape,
    gradient_shape,
    hadamard_shape,
    identity_shape,
    jacobian_shape,
    khatri_rao_shape,
    kron_shape,
    same_shape,
    scalar_shape,
    shape_of_second,
    turned_shape,
    vec_shape,
)
from ntk_deq.language.format import PRODUCT, SUM, TENSOR
from ntk_deq.language.functionals import TO_NUMBERS
from ntk_deq.language.notation import applied, fenced, group, mi, mo, tag, word
from ntk_deq.language.number_functions import ACTIVATIONS, CONSTANTS, OF_NUMBERS, RIVALS, WITH_A_PARAMETER
from ntk_deq.language.pieces import PIECES
from ntk_deq.language.record import (
    TRANSPOSED,
    Degree,
    Entrywise,
    Function,
    Kink,
    Product,
    Structure,
    always,
    first,
    lacking,
    product,
    with_zero,
)
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import NOT_NEGATIVE, UNIT, Range, Type

_P = Parameter

_DIFFERENTIAL = group(mo("∂", form="prefix"), mi("vec"), fenced("{}"))

OF_MATRICES = (
    Function(
        "kron",
        "Matrices",
        (_P.MATRIX, _P.MATRIX),
        "Kronecker product.",
        kron_shape,
        turns=True,
        degree=Degree.BILINEAR,
        values=product,
        reorders=True,
        mutant=("kronecker", "kronsum"),
        structure=Structure.OWN,
        infix="⊗",
        numpy="np.kron({}, {})",
    ),
    Function(
        "hadamard",
        "Matrices",
        (_P.MATRIX, _P.MATRIX),
        "Entrywise product of two matrices of one shape.",
        hadamard_shape,
        turns=True,
        commutes=True,
        degree=Degree.BILINEAR,
        product=Product.ENTRIES,
        values=product,
        infix="⊙",
        numpy="{:f} * {:s}",
        numpy_binding=PRODUCT,
        structure=Structure.ANY,
        lacks=lacking("mutant"),
    ),
    Function(
        "vec",
        "Matrices",
        (_P.MATRIX,),
        "The columns stacked into one vector, first column on top.",
        vec_shape,
        degree=Degree.LINEAR,
        lipschitz=1.0,
        values=first,
        numpy="vec({})",
        lacks=lacking("mutant mathml"),
    ),
    Function(
        "softmax",
        "Matrices",
        (_P.MATRIX,),
        "exp(x)/sum(exp(x)) of every column; `softmax(A')'` is that of every row.",
        same_shape,
        lipschitz=0.5,
        values=always(UNIT),
        numpy="(np.exp({0} - np.max({0}, axis=0)) / np.sum(np.exp({0} - np.max({0}, axis=0)), axis=0))",
        lacks=lacking("mutant mathml"),
    ),
    Function(
        "inv",
        "Matrices",
        (_P.SQUARE,),
        "Inverse.",
        same_shape,
        turns=True,
        smooth=True,
        partial=True,
        differential="-(Y*D*Y)",
        exponent="-1",
        numpy="np.linalg.inv({})",
        structure=Structure.ALL,
        lacks=lacking("values mutant"),
    ),
    Function(
        "kronsum",
        "Matrices",
        (_P.SQUARE, _P.SQUARE),
        "Kronecker sum: kron(A, I) + kron(I, B).",
        kron_shape,
        turns=True,
        degree=Degree.LINEAR,
        reorders=True,
        mutant=("kronecker", "kron"),
        infix="⊕",
        numpy="np.kron({0}, np.eye({1.shape[0]})) + np.kron(np.eye({0.shape[0]}), {1})",
        numpy_binding=SUM,
        lacks=lacking("values"),
    ),
    Function(
        "khatri_rao",
        "Matrices",
        (_P.MATRIX, _P.MATRIX),
        "Column by column Kronecker product of two matrices with as many columns.",
        khatri_rao_shape,
        degree=Degree.BILINEAR,
        values=product,
        infix="∗",
        numpy="np.repeat({0}, {1.shape[0]}, axis=0) * np.tile({1}, ({0.shape[0]}, 1))",
        numpy_binding=PRODUCT,
        lacks=lacking("mutant"),
    ),
    Function(
        "pinv",
        "Matrices",
        (_P.MATRIX,),
        "Pseudoinverse of Moore and Penrose.",
        turned_shape,
        turns=True,
        mutant=("inverse", TRANSPOSED),
        exponent="+",
        numpy="np.linalg.pinv({})",
        lacks=lacking("values"),
    ),
    Function(
        "sqrtm",
        "Matrices",
        (_P.SQUARE,),
        "Square root of a symmetric matrix without negative eigenvalues, and itself such a matrix.",
        same_shape,
        turns=True,
        of_symmetric=True,
        partial=True,
        exponent="1/2",
        numpy="sqrtm({})",
        lacks=lacking("values mutant"),
    ),
    Function(
        "diag",
        "Matrices",
        (_P.MATRIX,),
        "Diagonal matrix of a vector; vector of a square matrix's diagonal.",
        diag_shape,
        degree=Degree.LINEAR,
        symmetric=True,
        values=with_zero,
        structure=Structure.OWN,
        lacks=lacking("mutant mathml", numpy="it is another call of a vector than of a matrix"),
    ),
    Function(
        "I",
        "Matrices",
        (_P.SIZE,),
        "Identity matrix.",
        identity_shape,
        symmetric=True,
        unit=True,
        values=always(UNIT),
        mathml=tag("msub", mi("I"), "{}"),
        structure=Structure.OWN,
        numpy="np.eye({})",
        lacks=lacking("mutant"),
    ),
    Function(
        "zeros",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "Vector or matrix of zeros.",
        filled_shape,
        optional=1,
        symmetric=True,
        values=always(Range.point(0)),
        numpy="np.zeros({shape})",
        lacks=lacking("mutant", mathml="it is set as the digit"),
    ),
    Function(
        "ones",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "Vector or matrix of ones.",
        filled_shape,
        optional=1,
        symmetric=True,
        values=always(Range.point(1)),
        numpy="np.ones({shape})",
        lacks=lacking("mutant", mathml="it is set as the digit"),
    ),
    Function(
        "commutation",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "The matrix K with K*vec(A) == vec(A') for every n x m matrix A; one argument: n x n.",
        commutation_shape,
        optional=1,
        values=always(UNIT),
        mathml=tag("msub", mi("K"), "{}"),
        numpy="commutation({0}, {1})",
        lacks=lacking("mutant"),
    ),
)
"""Functions that take a matrix to a matrix."""

OF_THE_MODEL = (
    Function(
        "grad",
        "Derivatives",
        (_P.SCALAR, _P.VARIABLE),
        "Gradient of a scalar, through the equilibrium, in the shape of the variable.",
        gradient_shape,
        partial=True,
        mathml_binding=TENSOR,
    ),
    Function(
        "jac",
        "Derivatives",
        (_P.VALUE, _P.VARIABLE),
        "Jacobian matrix of vec(f) with respect to vec(x), through the equilibrium.",
        jacobian_shape,
        partial=True,
        mathml=tag("mfrac", _DIFFERENTIAL, _DIFFERENTIAL),
        mathml_binding=PRODUCT,
    ),
    Function(
        "slope",
        "Derivatives",
        (_P.FUNCTION, _P.VALUE, _P.SCALAR),
        "Derivative of a function of each entry, by its name: `slope(tanh, A)`, `slope(leaky_relu, A, a)`.",
        shape_of_second,
        optional=1,
    ),
    Function(
        "slope2",
        "Derivatives",
        (_P.FUNCTION, _P.VALUE, _P.SCALAR),
        "Second derivative of a function of each entry, by its name.",
        shape_of_second,
        optional=1,
    ),
    Function(
        "primitive",
        "Derivatives",
        (_P.FUNCTION, _P.VALUE, _P.SCALAR),
        "Integral of a function of each entry from 0, by its name, where it has a closed form.",
        shape_of_second,
        optional=1,
    ),
    Function(
        "fixed_point",
        "Model",
        (_P.STATE,),
        "Limit of the model's map iterated from a state.",
        same_shape,
        needs_model=True,
        partial=True,
        mathml=applied(tag("msup", mi("F"), mo("∞"))),
    ),
    Function(
        "next",
        "Model",
        (_P.STATE,),
        "The model's map applied once to a state.",
        same_shape,
        needs_model=True,
        mathml=word("F"),
    ),
)
"""Derivatives, and what has a meaning only beside a model."""


def _of_functions(name: str, rest: tuple[Parameter, ...], summary: str, result: Callable[[Call], Type]) -> Function:
    return Function(name, "Functions", (_P.OPERAND, *rest), summary, result, partial=True)


OF_FUNCTIONS = (
    _of_functions(
        "prox",
        (_P.VALUE, _P.SCALAR),
        "The u at which phi(u) + norm(u - x)^2/(2*mu) is least: `prox(phi, x, mu)`.",
        shape_of_second,
    ),
    Function(
        "indicator",
        "Functions",
        (_P.STATEMENT,),
        "0 where a statement holds, +inf elsewhere: a convex set in a minimum, `indicator(A*u == b)`.",
        scalar_shape,
        values=always(NOT_NEGATIVE),
    ),
    _of_functions(
        "resolvent",
        (_P.VALUE,),
        "`prox(phi, x, 1)` of convex functions alone: `z == resolvent(phi, z + g)` is `g in subdiff(phi, z)`.",
        shape_of_second,
    ),
    _of_functions(
        "moreau",
        (_P.VALUE, _P.SCALAR),
        "Moreau envelope, the least value of phi(u) + norm(u - x)^2/(2*mu): `moreau(phi, x, mu)`.",
        scalar_shape,
    ),
    _of_functions(
        "conjugate",
        (_P.VALUE,),
        "Convex conjugate, the largest value of dot(u, y) - phi(u): `conjugate(phi, y)`.",
        scalar_shape,
    ),
    _of_functions(
        "argmin", (), "Where a function is least: `argmin(phi)`, or `argmin(f, u)` of a formula.", shape_of_second
    ),
    _of_functions("minimum", (), "Least value of a function: `minimum(phi)`, `minimum(f, u)`.", scalar_shape),
    _of_functions(
        "supremum", (), "Least upper bound of a function's values: `supremum(phi)`, `supremum(f, u)`.", scalar_shape
    ),
    _of_functions(
        "infimum", (), "Greatest lower bound of a function's values: `infimum(phi)`, `infimum(f, u)`.", scalar_shape
    ),
)
"""What takes a function of an argument."""


_ALL = (
    *PIECES,
    *OF_MATRICES,
    *TO_NUMBERS,
    *ACTIVATIONS,
    *WITH_A_PARAMETER,
    *OF_NUMBERS,
    *CONSTANTS,
    *OF_THE_MODEL,
    *OF_FUNCTIONS,
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
"""Every function by name."""


def entrywise_of(name: str) -> Entrywise | None:
    """Return what is true of a function of one number; None for others and for operators."""
    function = FUNCTIONS.get(name)
    return None if function is None else function.entrywise


def record_of(expr: Expr) -> Function | None:
    """Return the record of the function that an expression calls; None where it is no call of one."""
    return FUNCTIONS.get(expr.name) if expr.kind is Kind.CALL else None


def product_of(expr: Expr) -> Product | None:
    """Return which product of two matrices of one shape an expression is; None where it is none."""
    record = record_of(expr)
    return None if record is None else record.product


def kink_of(name: str) -> Kink:
    """Return where a function of one number has no derivative; of others, and of operators, this says nothing.

    Example:
        >>> kink_of("relu").value, kink_of("norm").value, kink_of("multiply").value
        ('a corner at zero', 'nowhere', 'nowhere')
    """
    facts = entrywise_of(name)
    return Kink.NOWHERE if facts is None else facts.kink


def reference() -> list[tuple[str, str, str]]:
    """Return (group, signature, summary) of every function, group after group, for the documentation.

    Example:
        >>> reference()[1]
        ('Pieces', 'v{i..p}', 'The entries i to p of a vector.')
    """
    groups = list(dict.fromkeys(function.group for function in _ALL))
    return [(f.group, f.signature, f.summary) for f in sorted(_ALL, key=lambda f: groups.index(f.group))]


__all__ = ["FUNCTIONS", "RIVALS", "entrywise_of", "kink_of", "record_of", "reference"]
