"""The functions of the claim language: one record for each, which says what is true of it wherever it is asked for.

Here are those of one number, which act on a matrix entry by entry where they take one. What computes them is their twin
in `ntk_deq.evaluation.functions.entrywise`.
"""

from __future__ import annotations

from ntk_deq.language.calls import Parameter, same_shape, scalar_shape
from ntk_deq.language.format import POWER
from ntk_deq.language.functionals import TO_NUMBERS
from ntk_deq.language.interval import NOT_NEGATIVE, POSITIVE, UNIT, Range
from ntk_deq.language.matrix_functions import OF_MATRICES, OF_THE_MODEL
from ntk_deq.language.pieces import PIECES
from ntk_deq.language.record import Change, Entrywise, Function, Kink, applied, fenced
from ntk_deq.language.values import always, positive_part

_P, _C = Parameter, Change

RIVALS = "function"
"""The mutation rule that puts one function of a number in another's place."""

_NO_MUTANT = "no mutation rule puts another function in its place"
_NO_ORDER = "no function is known to be nowhere larger"
_UPRIGHT = "its name is set upright"
_SYMPY = "SymPy's printer sets the class that it has for it"
_CURVED = "it is not linear on both sides of zero"
_PRIMITIVE = "it is one of those that others are written in"

OF_NUMBERS = (
    Function(
        "abs",
        "Entrywise",
        (_P.VALUE,),
        "Absolute value of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(growth=0, curvature=1, kink=Kink.CORNER, lipschitz=1.0, sides=(-1, 1), slope="np.sign({})"),
        blind=frozenset({_C.SIGN}),
        values=always(NOT_NEGATIVE),
        above=frozenset({"relu"}),
        latex=r"\left|{}\right|",
        mathml=fenced("|"),
        sympy="Abs",
        numpy="np.abs({})",
        lacks={"mutant": _NO_MUTANT, "formula": _PRIMITIVE},
    ),
    Function(
        "relu",
        "Entrywise",
        (_P.VALUE,),
        "max(x, 0) of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(
            growth=1,
            curvature=1,
            kink=Kink.CORNER,
            lipschitz=1.0,
            sides=(0, 1),
            slope="np.heaviside({}, 0.0)",
            formula="max(x, 0)",
        ),
        values=positive_part,
        numpy="np.maximum({}, 0.0)",
        lacks={
            "above": _NO_ORDER,
            "mutant": _NO_MUTANT,
            "latex": _UPRIGHT,
            "mathml": _UPRIGHT,
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
        mathml=applied('<mi mathvariant="normal">relu′</mi>'),
        numpy="np.heaviside({}, 0.0)",
        lacks={
            "sides": "it is constant on both sides, and jumps",
            "slope": "zero wherever it has one",
            "formula": "it is no formula of continuous functions",
            "above": _NO_ORDER,
            "mutant": _NO_MUTANT,
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
            growth=1,
            curvature=1,
            lipschitz=1.0,
            slope="np.exp(-np.logaddexp(0.0, -({})))",
            formula="log(1 + exp(x))",
        ),
        values=always(POSITIVE),
        above=frozenset({"relu"}),
        mutant=(RIVALS, "relu"),
        numpy="np.logaddexp(0.0, {})",
        lacks={
            "sides": _CURVED,
            "latex": _UPRIGHT,
            "mathml": _UPRIGHT,
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
        mathml="<msqrt>{}</msqrt>",
        sympy="sqrt",
        numpy="np.sqrt({})",
        lacks={"sides": _CURVED, "above": _NO_ORDER, "mutant": _NO_MUTANT, "latex": _SYMPY},
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
        mathml="<msup><mi>e</mi>{}</msup>",
        mathml_binding=POWER,
        sympy="exp",
        numpy="np.exp({})",
        lacks={"sides": _CURVED, "formula": _PRIMITIVE, "mutant": _NO_MUTANT, "latex": _SYMPY},
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
            "latex": _SYMPY,
            "mathml": _UPRIGHT,
        },
    ),
)
"""Functions of one number."""

_ALL = (*PIECES, *OF_MATRICES, *TO_NUMBERS, *OF_NUMBERS, *OF_THE_MODEL)

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
        >>> reference()[1]
        ('Pieces', 'v{i..p}', 'The entries i to p of a vector.')
    """
    groups = list(dict.fromkeys(function.group for function in _ALL))
    return [(f.group, f.signature, f.summary) for f in sorted(_ALL, key=lambda f: groups.index(f.group))]
