"""The records of functions of analysis, each of one number, which act entry by entry on a matrix; and of constants.

Why a field of a record is not set, in words that records share. See `ntk_deq.language.functions`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ntk_deq.language.calls import Parameter, same_shape, scalar_shape
from ntk_deq.language.format import POWER
from ntk_deq.language.record import Change, Entrywise, Function, Kink, always
from ntk_deq.language.tree import PI
from ntk_deq.language.types import NOT_NEGATIVE, POSITIVE, Range

_P, _C = Parameter, Change

RIVALS = "function"
"""The mutation rule that puts one function of a number in another's place."""

NO_MUTANT = "no mutation rule puts another function in its place"
NO_ORDER = "no function is known to be nowhere larger"
UPRIGHT = "its name is set upright"
CURVED = "it is not linear on both sides of zero"
PRIMITIVE = "it is one of those that others are written in"
BEYOND = "the prover has no terms for it, so that claims with it are tried on instances alone"

OPEN_UNIT = Range(Fraction(-1), Fraction(1), low_open=True, high_open=True)
SIGNED_UNIT = Range(Fraction(-1), Fraction(1))

OF_NUMBERS = (
    Function(
        "erf",
        "Entrywise",
        (_P.VALUE,),
        "Error function, 2/sqrt(pi) times the integral of exp(-s^2) from 0 to x.",
        same_shape,
        entrywise=Entrywise(
            growth=1,
            curvature=0,
            slopes=(0.0, 1.1284),  # 2/sqrt(pi) = 1.12837...
            slope="(2.0 / np.sqrt(np.pi) * np.exp(-(({0})**2)))",
            derivative="2/sqrt(pi)*exp(-x^2)",
            primitive="x*erf(x) + (exp(-x^2) - 1)/sqrt(pi)",
        ),
        values=always(OPEN_UNIT),
        mutant=(RIVALS, "tanh"),
        numpy="np.vectorize(math.erf, otypes=[float])({})",
        lacks={"sides": CURVED, "formula": BEYOND, "above": NO_ORDER, "mathml": UPRIGHT},
    ),
    Function(
        "sin",
        "Entrywise",
        (_P.VALUE,),
        "Sine of a scalar or of every entry, in radians.",
        same_shape,
        entrywise=Entrywise(
            growth=0,
            curvature=0,
            slopes=(-1.0, 1.0),
            slope="np.cos({})",
            derivative="cos(x)",
            primitive="1 - cos(x)",
        ),
        values=always(SIGNED_UNIT),
        mutant=(RIVALS, "cos"),
        numpy="np.sin({})",
        lacks={"mathml": UPRIGHT, "sides": CURVED, "formula": BEYOND, "above": NO_ORDER},
    ),
    Function(
        "cos",
        "Entrywise",
        (_P.VALUE,),
        "Cosine of a scalar or of every entry, in radians.",
        same_shape,
        entrywise=Entrywise(
            growth=0,
            curvature=0,
            slopes=(-1.0, 1.0),
            slope="(-np.sin({}))",
            derivative="-sin(x)",
            primitive="sin(x)",
        ),
        blind=frozenset({_C.SIGN}),
        values=always(SIGNED_UNIT),
        mutant=(RIVALS, "sin"),
        numpy="np.cos({})",
        lacks={"mathml": UPRIGHT, "sides": CURVED, "formula": BEYOND, "above": NO_ORDER},
    ),
    Function(
        "arccos",
        "Entrywise",
        (_P.VALUE,),
        "Angle in [0, pi] with a given cosine, of a scalar or of every entry; of numbers in [-1, 1].",
        same_shape,
        entrywise=Entrywise(
            domain=SIGNED_UNIT,
            growth=-1,
            curvature=0,
            kink=Kink.EDGE,
            slopes=(-math.inf, -1.0),
            slope="(-1.0 / np.sqrt((1.0 - ({0})) * (1.0 + ({0}))))",
            derivative="-exp(-log(1 - x^2)/2)",
            primitive="x*arccos(x) - sqrt(1 - x^2) + 1",
        ),
        values=always(Range(Fraction(0), Fraction(22, 7))),
        mutant=(RIVALS, "cos"),
        numpy="np.arccos({})",
        lacks={"mathml": UPRIGHT, "sides": CURVED, "formula": BEYOND, "above": NO_ORDER},
    ),
    Function(
        "arctan",
        "Entrywise",
        (_P.VALUE,),
        "Angle in (-pi/2, pi/2) with a given tangent, of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(
            growth=1,
            curvature=0,
            slopes=(0.0, 1.0),
            slope="(1.0 / (1.0 + ({0})**2))",
            derivative="exp(-log(1 + x^2))",
            primitive="x*arctan(x) - log(1 + x^2)/2",
        ),
        values=always(Range(Fraction(-11, 7), Fraction(11, 7))),
        mutant=(RIVALS, "tanh"),
        numpy="np.arctan({})",
        lacks={"mathml": UPRIGHT, "sides": CURVED, "formula": BEYOND, "above": NO_ORDER},
    ),
    Function(
        "sqrt",
        "Entrywise",
        (_P.VALUE,),
        "Square root of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(
            domain=NOT_NEGATIVE,
            growth=1,
            curvature=-1,
            kink=Kink.EDGE,
            slopes=(0.0, math.inf),
            slope="(0.5 / np.sqrt({}))",
            formula="x^(1/2)",
            derivative="exp(-log(x)/2)/2",
            primitive="2/3*x*sqrt(x)",
            of_numbers=True,
        ),
        in_draws=True,
        values=always(NOT_NEGATIVE),
        mathml="<msqrt>{}</msqrt>",
        numpy="np.sqrt({})",
        lacks={"sides": CURVED, "above": NO_ORDER, "mutant": NO_MUTANT},
    ),
    Function(
        "exp",
        "Entrywise",
        (_P.VALUE,),
        "Exponential function of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(
            growth=1,
            curvature=1,
            slopes=(0.0, math.inf),
            slope="np.exp({})",
            derivative="exp(x)",
            primitive="exp(x) - 1",
            of_numbers=True,
        ),
        term=True,
        in_draws=True,
        values=always(POSITIVE),
        above=frozenset({"relu", "softplus"}),
        mathml="<msup><mi>e</mi>{}</msup>",
        mathml_binding=POWER,
        numpy="np.exp({})",
        lacks={"sides": CURVED, "formula": PRIMITIVE, "mutant": NO_MUTANT},
    ),
    Function(
        "log",
        "Entrywise",
        (_P.VALUE,),
        "Natural logarithm of a scalar or of every entry.",
        same_shape,
        entrywise=Entrywise(
            domain=POSITIVE,
            growth=1,
            curvature=-1,
            slopes=(0.0, math.inf),
            slope="(1.0 / ({}))",
            derivative="exp(-log(x))",
        ),
        term=True,
        in_draws=True,
        values=always(Range()),
        numpy="np.log({})",
        lacks={
            "sides": CURVED,
            "formula": PRIMITIVE,
            "primitive": "it has no value at 0, where the integral starts",
            "above": NO_ORDER,
            "mutant": NO_MUTANT,
            "mathml": UPRIGHT,
        },
    ),
)
"""Functions of analysis."""

CONSTANTS = (
    Function(
        PI,
        "Constants",
        (),
        "The circle's circumference over its diameter, unless a claim has a name of its own called `pi`.",
        scalar_shape,
        values=always(Range(Fraction(333, 106), Fraction(355, 113), low_open=True, high_open=True)),
        mathml="<mi>π</mi>",
        numpy="np.pi",
    ),
)
"""Numbers with a name."""
