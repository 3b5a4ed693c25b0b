"""The records of the functions of matrices, of derivatives and of the model; see `ntk_deq.language.functions`."""

from __future__ import annotations

from ntk_deq.language.calls import (
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
    turned_shape,
    vec_shape,
)
from ntk_deq.language.interval import UNIT, Range
from ntk_deq.language.record import TRANSPOSED, Degree, Function, word
from ntk_deq.language.values import always, first, product, with_zero

_P = Parameter

_MOVED = r"\partial \operatorname{{{{vec}}}}\left({{{}}}\right)"

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
        mutant=("kronecker", "kronsum"),
        infix=("⊗", r"\otimes"),
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
        values=product,
        infix=("⊙", r"\odot"),
    ),
    Function(
        "vec",
        "Matrices",
        (_P.MATRIX,),
        "The columns stacked into one vector, first column on top.",
        vec_shape,
        degree=Degree.LINEAR,
        values=first,
    ),
    Function("inv", "Matrices", (_P.SQUARE,), "Inverse.", same_shape, turns=True, smooth=True, exponent="-1"),
    Function(
        "kronsum",
        "Matrices",
        (_P.SQUARE, _P.SQUARE),
        "Kronecker sum: kron(A, I) + kron(I, B).",
        kron_shape,
        turns=True,
        degree=Degree.LINEAR,
        mutant=("kronecker", "kron"),
        infix=("⊕", r"\oplus"),
    ),
    Function(
        "khatri_rao",
        "Matrices",
        (_P.MATRIX, _P.MATRIX),
        "Column by column Kronecker product of two matrices with as many columns.",
        khatri_rao_shape,
        degree=Degree.BILINEAR,
        values=product,
        infix=("∗", r"\ast"),
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
    ),
    Function(
        "sqrtm",
        "Matrices",
        (_P.SQUARE,),
        "Square root of a symmetric matrix without negative eigenvalues, and itself such a matrix.",
        same_shape,
        turns=True,
        of_symmetric=True,
        exponent="1/2",
    ),
    Function(
        "diag",
        "Matrices",
        (_P.MATRIX,),
        "Diagonal matrix of a vector; vector of a square matrix's diagonal.",
        diag_shape,
        degree=Degree.LINEAR,
        values=with_zero,
    ),
    Function("I", "Matrices", (_P.SIZE,), "Identity matrix.", identity_shape, values=always(UNIT)),
    Function(
        "zeros",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "Vector or matrix of zeros.",
        filled_shape,
        optional=1,
        values=always(Range.point(0)),
    ),
    Function(
        "ones",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "Vector or matrix of ones.",
        filled_shape,
        optional=1,
        values=always(Range.point(1)),
    ),
    Function(
        "commutation",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "The matrix K with K*vec(A) == vec(A') for every n x m matrix A; one argument: n x n.",
        commutation_shape,
        optional=1,
        values=always(UNIT),
        latex=r"K_{{{}}}",
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
        latex=r"\nabla_{{{1}}} \left({0}\right)",
    ),
    Function(
        "jac",
        "Derivatives",
        (_P.VALUE, _P.VARIABLE),
        "Jacobian matrix of vec(f) with respect to vec(x), through the equilibrium.",
        jacobian_shape,
        latex=rf"\frac{{{{{_MOVED.format(0)}}}}}{{{{{_MOVED.format(1)}}}}}",
    ),
    Function(
        "fixed_point",
        "Model",
        (_P.STATE,),
        "Limit of the model's map iterated from a state.",
        same_shape,
        needs_model=True,
        latex=r"F^{{\infty}}\left({}\right)",
    ),
    Function(
        "next",
        "Model",
        (_P.STATE,),
        "The model's map applied once to a state.",
        same_shape,
        needs_model=True,
        latex=r"F\left({}\right)",
        mathml=word("F"),
    ),
)
"""Derivatives, and what has a meaning only beside a model."""
