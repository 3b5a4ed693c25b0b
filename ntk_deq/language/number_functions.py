"""The records of functions of one number, which act on a matrix entry by entry: activations, functions of analysis.

Then those that take a parameter besides, a number, and are written out in the others; and constants. See
`ntk_deq.language.functions`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from ntk_deq.language.calls import Parameter, same_shape, scalar_shape
from ntk_deq.language.format import POWER
from ntk_deq.language.notation import fenced, word
from ntk_deq.language.record import (
    Change,
    Definition,
    Entrywise,
    Function,
    Kink,
    always,
    lacking,
    magnitude,
    positive_part,
)
from ntk_deq.language.tree import PI
from ntk_deq.language.types import NOT_NEGATIVE, POSITIVE, UNIT, Range

_P, _C = Parameter, Change

RIVALS = "function"
"""The mutation rule that puts one function of a number in another's place."""

OPEN_UNIT = Range(Fraction(-1), Fraction(1), low_open=True, high_open=True)
SIGNED_UNIT = Range(Fraction(-1), Fraction(1))

PRIMITIVE = "it is one of those that others are written in"
BEYOND = "the prover has no terms for it, so that claims with it are tried on instances alone"

_NO_SLOPE = "0*step(x)"  # the slope of what jumps at zero, where `step` says that there is none
_JUMPS = {
    "sides": "it is constant on both sides, and jumps",
    "slope": "zero wherever it has one",
    "formula": "it is no formula of continuous functions",
}

_of_each = partial(Function, group="Entrywise", parameters=(_P.VALUE,), result=same_shape)
_of_each_and_a_number = partial(_of_each, parameters=(_P.VALUE, _P.SCALAR))


ACTIVATIONS = (
    _of_each(
        name="abs",
        summary="Absolute value of a scalar or of every entry.",
        entrywise=Entrywise(
            growth=0,
            curvature=1,
            kink=Kink.CORNER,
            slopes=(-1.0, 1.0),
            sides=(-1, 1),
            slope="np.sign({})",
            derivative="step(x) - step(-x)",
            primitive="x*abs(x)/2",
        ),
        blind=frozenset({_C.SIGN}),
        term=True,
        in_draws=True,
        values=magnitude,
        above=frozenset({"relu"}),
        mathml=fenced("{}", "|", "|"),
        numpy="np.abs({})",
        lacks=lacking("mutant", formula=PRIMITIVE),
    ),
    _of_each(
        name="sign",
        summary="1 where x > 0, -1 where x < 0, 0 at 0.",
        entrywise=Entrywise(
            growth=1, curvature=0, kink=Kink.JUMP, slopes=(0.0, math.inf), derivative=_NO_SLOPE, primitive="abs(x)"
        ),
        values=always(SIGNED_UNIT),
        mutant=(RIVALS, "step"),
        numpy="np.sign({})",
        lacks=lacking("above mathml", **_JUMPS),
    ),
    _of_each(
        name="relu",
        summary="max(x, 0) of a scalar or of every entry.",
        entrywise=Entrywise(
            growth=1,
            curvature=1,
            kink=Kink.CORNER,
            slopes=(0.0, 1.0),
            sides=(0, 1),
            slope="np.heaviside({}, 0.0)",
            formula="max(x, 0)",
            derivative="step(x)",
            primitive="relu(x)^2/2",
        ),
        values=positive_part,
        numpy="np.maximum({}, 0.0)",
        lacks=lacking("above mutant mathml"),
    ),
    _of_each(
        name="step",
        summary="Derivative of relu: 1 where x > 0, otherwise 0 (also at 0).",
        entrywise=Entrywise(
            growth=1,
            curvature=0,
            kink=Kink.JUMP,
            valued=False,
            slopes=(0.0, math.inf),
            derivative=_NO_SLOPE,
            primitive="relu(x)",
        ),
        values=always(UNIT),
        mathml=word("relu′"),
        numpy="np.heaviside({}, 0.0)",
        lacks=lacking("above mutant", **_JUMPS),
    ),
    _of_each(
        name="softplus",
        summary="log(1 + exp(x)) of a scalar or of every entry, a smooth relu.",
        entrywise=Entrywise(
            growth=1,
            curvature=1,
            slopes=(0.0, 1.0),
            slope="np.exp(-np.logaddexp(0.0, -({})))",
            formula="log(1 + exp(x))",
            derivative="sigmoid(x)",
        ),
        values=always(POSITIVE),
        above=frozenset({"relu"}),
        mutant=(RIVALS, "relu"),
        numpy="np.logaddexp(0.0, {})",
        lacks=lacking("sides mathml", primitive="it has no closed form in functions of the language"),
    ),
    _of_each(
        name="tanh",
        summary="Hyperbolic tangent of a scalar or of every entry.",
        entrywise=Entrywise(
            growth=1,
            curvature=0,
            slopes=(0.0, 1.0),
            slope="(1.0 - np.tanh({0})**2)",
            formula="1 - 2/(exp(2*x) + 1)",
            derivative="1 - tanh(x)^2",
            primitive="softplus(2*x) - x - log(2)",
        ),
        values=always(OPEN_UNIT),
        mutant=(RIVALS, "sigmoid"),
        numpy="np.tanh({})",
        lacks=lacking("mathml sides above"),
    ),
    _of_each(
        name="sigmoid",
        summary="1/(1 + exp(-x)) of a scalar or of every entry.",
        entrywise=Entrywise(
            growth=1,
            curvature=0,
            slopes=(0.0, 0.25),
            slope="(np.exp(-np.abs({0})) / (1.0 + np.exp(-np.abs({0})))**2)",
            formula="1/(1 + exp(-x))",
            derivative="sigmoid(x)*sigmoid(-x)",
            primitive="softplus(x) - log(2)",
        ),
        values=always(Range(Fraction(0), Fraction(1), low_open=True, high_open=True)),
        mutant=(RIVALS, "tanh"),
        numpy="(np.exp(np.minimum({0}, 0.0)) / (1.0 + np.exp(-np.abs({0}))))",
        lacks=lacking("sides above mathml"),
    ),
    _of_each_and_a_number(
        name="huber",
        summary="x^2/2 where abs(x) <= delta, delta*(abs(x) - delta/2) beyond; delta is 1 if left out.",
        optional=1,
        entrywise=Entrywise(
            growth=0,
            curvature=1,
            slopes=(-1.0, 1.0),
            slope="np.clip({}, -1.0, 1.0)",
            formula="min(abs(x), 1)*(abs(x) - min(abs(x), 1)/2)",
            derivative="x - softthreshold(x, 1)",
        ),
        definition=Definition(
            names=("x", "d"),
            formula="d^2*huber(x/d)",
            lipschitz="abs(d)",
            numpy="(np.minimum(np.abs({0}), abs({1})) * (np.abs({0}) - np.minimum(np.abs({0}), abs({1})) / 2))",
            slope="np.clip({0}, -abs({1}), abs({1}))",
        ),
        blind=frozenset({_C.SIGN}),
        values=always(NOT_NEGATIVE),
        mutant=(RIVALS, "abs"),
        numpy="(np.minimum(np.abs({0}), 1.0) * (np.abs({0}) - np.minimum(np.abs({0}), 1.0) / 2))",
        lacks=lacking("sides above mathml", primitive="nobody has asked for it"),
    ),
)
"""Activations, and what comes with them."""

OF_NUMBERS = (
    _of_each(
        name="erf",
        summary="Error function, 2/sqrt(pi) times the integral of exp(-s^2) from 0 to x.",
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
        lacks=lacking("sides above mathml", formula=BEYOND),
    ),
    _of_each(
        name="sin",
        summary="Sine of a scalar or of every entry, in radians.",
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
        lacks=lacking("mathml sides above", formula=BEYOND),
    ),
    _of_each(
        name="cos",
        summary="Cosine of a scalar or of every entry, in radians.",
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
        lacks=lacking("mathml sides above", formula=BEYOND),
    ),
    _of_each(
        name="arccos",
        summary="Angle in [0, pi] with a given cosine, of a scalar or of every entry; of numbers in [-1, 1].",
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
        lacks=lacking("mathml sides above", formula=BEYOND),
    ),
    _of_each(
        name="arctan",
        summary="Angle in (-pi/2, pi/2) with a given tangent, of a scalar or of every entry.",
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
        lacks=lacking("mathml sides above", formula=BEYOND),
    ),
    _of_each(
        name="sqrt",
        summary="Square root of a scalar or of every entry.",
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
        lacks=lacking("sides above mutant"),
    ),
    _of_each(
        name="exp",
        summary="Exponential function of a scalar or of every entry.",
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
        lacks=lacking("sides mutant", formula=PRIMITIVE),
    ),
    _of_each(
        name="log",
        summary="Natural logarithm of a scalar or of every entry.",
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
        lacks=lacking(
            "sides above mutant mathml", formula=PRIMITIVE, primitive="it has no value at 0, where the integral starts"
        ),
    ),
)
"""Functions of analysis."""

_WRITTEN = lacking("mathml above", numpy="its definition has it, as it has two arguments")

WITH_A_PARAMETER = (
    _of_each_and_a_number(
        name="shift",
        summary="x + c of a scalar or of every entry: `shift(A, c)` is A + c*ones(n, m).",
        definition=Definition(
            names=("x", "c"),
            formula="x + c",
            lipschitz="1",
            proximal=(-math.inf, math.inf),
            primitive="x^2/2 + c*x",
            numpy="(({0}) + ({1}))",
            slope="1.0",
        ),
        lacks={**_WRITTEN, "values": "that of a sum is not among the rules", **lacking("mutant")},
    ),
    _of_each_and_a_number(
        name="leaky_relu",
        summary="x where x > 0, a*x otherwise, of a scalar or of every entry: `leaky_relu(A, a)`.",
        definition=Definition(
            names=("x", "a"),
            formula="relu(x) - a*relu(-x)",
            lipschitz="max(1, abs(a))",
            proximal=(0.0, 1.0),
            primitive="(relu(x)^2 + a*relu(-x)^2)/2",
            numpy="np.where(({0}) > 0, ({0}), ({1}) * ({0}))",
            slope="np.where(({0}) > 0, 1.0, ({1}))",
        ),
        mutant=(RIVALS, "softthreshold"),
        lacks={**_WRITTEN, "values": "they depend on the sign of the parameter"},
    ),
    _of_each_and_a_number(
        name="softthreshold",
        summary="sign(x)*max(abs(x) - t, 0) of a scalar or of every entry, the prox of t*abs(x); t < 0 counts as 0.",
        definition=Definition(
            names=("x", "t"),
            formula="relu(x - relu(t)) - relu(-x - relu(t))",
            lipschitz="1",
            proximal=(-math.inf, math.inf),
            primitive="softthreshold(x, t)^2/2",
            numpy="(np.sign({0}) * np.maximum(np.abs({0}) - max({1}, 0.0), 0.0))",
            slope="np.where(np.abs({0}) > max({1}, 0.0), 1.0, 0.0)",
        ),
        mutant=(RIVALS, "leaky_relu"),
        lacks={**_WRITTEN, "values": "any number is one"},
    ),
)
"""Functions of each entry and of a number, written out in functions of each entry."""

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
