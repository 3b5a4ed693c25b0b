"""The functions of the claim language: one record for each, which says what is true of it wherever it is asked for.

What computes it is its twin in `ntk_deq.evaluation.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ntk_deq.language.calls import (
    Call,
    Parameter,
    commutation_shape,
    diag_shape,
    dot_shape,
    extreme_shape,
    filled_shape,
    gradient_shape,
    hadamard_shape,
    identity_shape,
    jacobian_shape,
    kron_shape,
    same_shape,
    scalar_shape,
    vec_shape,
)
from ntk_deq.language.interval import NOT_NEGATIVE, POSITIVE, UNIT, Range
from ntk_deq.language.types import Type
from ntk_deq.language.values import always, positive_part

RIVALS = "function"
"""The mutation rule that puts a function's usual mistake in its place."""


class Kink(StrEnum):
    """Where a function of one number has a value and no derivative."""

    NOWHERE = "nowhere"
    CORNER = "a corner at zero"  # the slopes from below and from above differ
    JUMP = "a jump at zero"  # and constant on both sides
    EDGE = "zero, where its domain ends"


@dataclass(frozen=True, kw_only=True)
class Entrywise:
    """What is true of a real function of one number, which acts on a matrix, where it takes one, entry by entry.

    Attributes:
        domain: Where it is defined.
        growth: 1 where it nowhere falls, -1 where it nowhere rises, 0 for neither.
        curvature: 1 where it is convex, -1 where it is concave, 0 for neither.
        even: Whether f(-x) = f(x).
        kink: Where it has no derivative.
        sides: Its slopes below and above zero, where it is linear on both sides and zero at zero.
        slope: Its derivative in NumPy, {} the argument.
        formula: What it is in simpler functions of the language, of the argument x.
    """

    domain: Range = field(default_factory=Range)
    growth: int
    curvature: int
    even: bool = False
    kink: Kink = Kink.NOWHERE
    sides: tuple[int, int] | None = None
    slope: str | None = None
    formula: str | None = None


@dataclass(frozen=True)
class Function:
    """A function of the language.

    Attributes:
        name: How it is written.
        group: The heading it stands under in the reference.
        parameters: What its arguments must be.
        summary: One line for people.
        result: The shape rule: the type of a checked call.
        optional: How many parameters, from the last, may be left out.
        repeats: Whether the last parameter may be given any number of times.
        needs_model: Whether it has a meaning only where the setting names a model.
        entrywise: What is true of it as a function of one number, if it is one.
        values: The range of its values, from those of its arguments; those of matrices are of their entries.
        above: Functions of the same arguments that are nowhere larger.
        mutant: A mutation rule, and the function that it puts in its place.
        latex: How a call is set in LaTeX; {} is the list of arguments. Without it, the name is set upright.
        mathml: The same in MathML.
        word: What stands for its name in MathML, where that is written before the arguments.
        sympy: SymPy's own class for it, for numbers.
        numpy: A call in NumPy, {} the argument.
        lacks: Why a field is not set, for those that are not.
    """

    name: str
    group: str
    parameters: tuple[Parameter, ...]
    summary: str
    result: Callable[[Call], Type]
    optional: int = 0
    repeats: bool = False
    needs_model: bool = False
    entrywise: Entrywise | None = None
    values: Callable[[Sequence[Range]], Range] | None = None
    above: frozenset[str] = frozenset()
    mutant: tuple[str, str] | None = None
    latex: str | None = None
    mathml: str | None = None
    word: str | None = None
    sympy: str | None = None
    numpy: str | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_matrices(self) -> bool:
        """Whether its first argument may be a matrix."""
        return self.parameters[0] is not Parameter.SCALAR

    @property
    def signature(self) -> str:
        """The call as people read it, for example `kron(matrix, matrix)`."""
        required = [str(p) for p in self.parameters[: len(self.parameters) - self.optional]]
        text = ", ".join(required)
        for parameter in self.parameters[len(required) :]:
            text += f"[, {parameter}]"
        return f"{self.name}({text}{', ...' if self.repeats else ''})"

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        most = len(self.parameters)
        return most - self.optional <= count and (count <= most or self.repeats)

    @property
    def counts(self) -> str:
        """How many arguments it takes, in words."""
        least, most = len(self.parameters) - self.optional, len(self.parameters)
        number = f"{least} or {most}" if least != most else str(most)
        return f"{'at least ' if self.repeats else ''}{number} argument{'s' if most > 1 else ''}"


_P = Parameter

_NO_MUTANT = "no mutation rule puts another function in its place"
_NO_ORDER = "no function is known to be nowhere larger"
_UPRIGHT = "its name is set upright"
_NOT_WORD = "it has a notation of its own"
_CURVED = "it is not linear on both sides of zero"
_PRIMITIVE = "it is one of those that others are written in"


def _bars(bar: str) -> str:
    return f'<mrow><mo stretchy="true">{bar}</mo>{{}}<mo stretchy="true">{bar}</mo></mrow>'


_ALL = (
    Function("kron", "Matrices", (_P.MATRIX, _P.MATRIX), "Kronecker product.", kron_shape),
    Function(
        "hadamard",
        "Matrices",
        (_P.MATRIX, _P.MATRIX),
        "Entrywise product of two matrices of one shape.",
        hadamard_shape,
    ),
    Function("vec", "Matrices", (_P.MATRIX,), "The columns stacked into one vector, first column on top.", vec_shape),
    Function("inv", "Matrices", (_P.SQUARE,), "Inverse.", same_shape),
    Function(
        "diag",
        "Matrices",
        (_P.MATRIX,),
        "Diagonal matrix of a vector; vector of a square matrix's diagonal.",
        diag_shape,
    ),
    Function("I", "Matrices", (_P.SIZE,), "Identity matrix.", identity_shape),
    Function("zeros", "Matrices", (_P.SIZE, _P.SIZE), "Vector or matrix of zeros.", filled_shape, optional=1),
    Function("ones", "Matrices", (_P.SIZE, _P.SIZE), "Vector or matrix of ones.", filled_shape, optional=1),
    Function(
        "commutation",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "The matrix K with K*vec(A) == vec(A') for every n x m matrix A; one argument: n x n.",
        commutation_shape,
        optional=1,
    ),
    Function("trace", "Numbers of a matrix", (_P.SQUARE,), "Sum of the diagonal.", scalar_shape),
    Function("det", "Numbers of a matrix", (_P.SQUARE,), "Determinant.", scalar_shape),
    Function("sum", "Numbers of a matrix", (_P.MATRIX,), "Sum of all entries.", scalar_shape),
    Function("dot", "Numbers of a matrix", (_P.VECTOR, _P.VECTOR), "Inner product of two vectors.", dot_shape),
    Function(
        "max",
        "Numbers of a matrix",
        (_P.VALUE,),
        "Largest of several scalars, or of a matrix's entries.",
        extreme_shape,
        repeats=True,
    ),
    Function(
        "min",
        "Numbers of a matrix",
        (_P.VALUE,),
        "Smallest of several scalars, or of a matrix's entries.",
        extreme_shape,
        repeats=True,
    ),
    Function(
        "norm",
        "Norms and spectra",
        (_P.VALUE,),
        "Spectral norm of a matrix, Euclidean norm of a vector, absolute value of a scalar.",
        scalar_shape,
    ),
    Function("fro", "Norms and spectra", (_P.MATRIX,), "Frobenius norm.", scalar_shape),
    Function("norm1", "Norms and spectra", (_P.MATRIX,), "Largest absolute column sum.", scalar_shape),
    Function("norminf", "Norms and spectra", (_P.MATRIX,), "Largest absolute row sum.", scalar_shape),
    Function("sigma_min", "Norms and spectra", (_P.MATRIX,), "The min(rows, columns)-th singular value.", scalar_shape),
    Function("sigma_max", "Norms and spectra", (_P.MATRIX,), "Largest singular value.", scalar_shape),
    Function("cond", "Norms and spectra", (_P.MATRIX,), "Largest over smallest singular value.", scalar_shape),
    Function("lambda_min", "Norms and spectra", (_P.SQUARE,), "Smallest real part of an eigenvalue.", scalar_shape),
    Function("lambda_max", "Norms and spectra", (_P.SQUARE,), "Largest real part of an eigenvalue.", scalar_shape),
    Function(
        "rho", "Norms and spectra", (_P.SQUARE,), "Spectral radius: largest modulus of an eigenvalue.", scalar_shape
    ),
    Function(
        "abs",
        "Entrywise",
        (_P.VALUE,),
        "Absolute value of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(growth=0, curvature=1, even=True, kink=Kink.CORNER, sides=(-1, 1), slope="np.sign({})"),
        values=always(NOT_NEGATIVE),
        above=frozenset({"relu"}),
        latex=r"\left|{}\right|",
        mathml=_bars("|"),
        sympy="Abs",
        numpy="np.abs({})",
        lacks={"mutant": _NO_MUTANT, "word": _NOT_WORD, "formula": _PRIMITIVE},
    ),
    Function(
        "relu",
        "Entrywise",
        (_P.VALUE,),
        "max(x, 0) of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(
            growth=1, curvature=1, kink=Kink.CORNER, sides=(0, 1), slope="np.heaviside({}, 0.0)", formula="max(x, 0)"
        ),
        values=positive_part,
        numpy="np.maximum({}, 0.0)",
        lacks={
            "above": _NO_ORDER,
            "mutant": _NO_MUTANT,
            "latex": _UPRIGHT,
            "mathml": _UPRIGHT,
            "word": _UPRIGHT,
            "sympy": "SymPy's Max(x, 0) is printed as a maximum",
        },
    ),
    Function(
        "step",
        "Entrywise",
        (_P.VALUE,),
        "Derivative of relu: 1 where x > 0, otherwise 0 (also at 0).",
        same_shape,
        entrywise=Entrywise(growth=1, curvature=0, kink=Kink.JUMP),
        values=always(UNIT),
        latex=r"\operatorname{{relu}}'\left({}\right)",
        word="relu′",
        numpy="np.heaviside({}, 0.0)",
        lacks={
            "sides": "it is constant on both sides, and jumps",
            "slope": "zero wherever it has one",
            "formula": "it is no formula of continuous functions",
            "above": _NO_ORDER,
            "mutant": _NO_MUTANT,
            "mathml": "a word and its argument",
            "sympy": "SymPy's Heaviside is printed as another letter",
        },
    ),
    Function(
        "softplus",
        "Entrywise",
        (_P.VALUE,),
        "log(1 + exp(x)) of a scalar or of every entry, a smooth relu.",
        same_shape,
        entrywise=Entrywise(
            growth=1, curvature=1, slope="np.exp(-np.logaddexp(0.0, -({})))", formula="log(1 + exp(x))"
        ),
        values=always(POSITIVE),
        above=frozenset({"relu"}),
        mutant=(RIVALS, "relu"),
        numpy="np.logaddexp(0.0, {})",
        lacks={
            "sides": _CURVED,
            "latex": _UPRIGHT,
            "mathml": _UPRIGHT,
            "word": _UPRIGHT,
            "sympy": "SymPy has no class for it",
        },
    ),
    Function(
        "sqrt",
        "Numbers",
        (_P.SCALAR,),
        "Square root.",
        scalar_shape,
        entrywise=Entrywise(
            domain=NOT_NEGATIVE, growth=1, curvature=-1, kink=Kink.EDGE, slope="(0.5 / np.sqrt({}))", formula="x^(1/2)"
        ),
        values=always(NOT_NEGATIVE),
        latex=r"\sqrt{{{}}}",
        mathml="<msqrt>{}</msqrt>",
        sympy="sqrt",
        numpy="np.sqrt({})",
        lacks={"sides": _CURVED, "above": _NO_ORDER, "mutant": _NO_MUTANT, "word": _NOT_WORD},
    ),
    Function(
        "exp",
        "Numbers",
        (_P.SCALAR,),
        "Exponential function.",
        scalar_shape,
        entrywise=Entrywise(growth=1, curvature=1, slope="np.exp({})"),
        values=always(POSITIVE),
        above=frozenset({"relu", "softplus"}),
        latex="e^{{{}}}",
        mathml="<msup><mi>e</mi>{}</msup>",
        sympy="exp",
        numpy="np.exp({})",
        lacks={"sides": _CURVED, "formula": _PRIMITIVE, "mutant": _NO_MUTANT, "word": _NOT_WORD},
    ),
    Function(
        "log",
        "Numbers",
        (_P.SCALAR,),
        "Natural logarithm.",
        scalar_shape,
        entrywise=Entrywise(domain=POSITIVE, growth=1, curvature=-1, slope="(1.0 / ({}))"),
        values=always(Range()),
        sympy="log",
        numpy="np.log({})",
        lacks={
            "sides": _CURVED,
            "formula": _PRIMITIVE,
            "above": _NO_ORDER,
            "mutant": _NO_MUTANT,
            "latex": "SymPy sets it",
            "mathml": _UPRIGHT,
            "word": _UPRIGHT,
        },
    ),
    Function(
        "grad",
        "Derivatives",
        (_P.SCALAR, _P.VARIABLE),
        "Gradient of a scalar, through the equilibrium, in the shape of the variable.",
        gradient_shape,
    ),
    Function(
        "jac",
        "Derivatives",
        (_P.VALUE, _P.VARIABLE),
        "Jacobian matrix of vec(f) with respect to vec(x), through the equilibrium.",
        jacobian_shape,
    ),
    Function(
        "fixed_point",
        "Model",
        (_P.STATE,),
        "Limit of the model's map iterated from a state.",
        same_shape,
        needs_model=True,
    ),
    Function("next", "Model", (_P.STATE,), "The model's map applied once to a state.", same_shape, needs_model=True),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
"""Every function by name."""


def entrywise_of(name: str) -> Entrywise | None:
    """Return what is true of a function of one number; None for others and for operators."""
    function = FUNCTIONS.get(name)
    return None if function is None else function.entrywise


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
        >>> reference()[0]
        ('Matrices', 'kron(matrix, matrix)', 'Kronecker product.')
    """
    groups = list(dict.fromkeys(function.group for function in _ALL))
    return [(f.group, f.signature, f.summary) for f in sorted(_ALL, key=lambda f: groups.index(f.group))]
