"""The records of activations, which act entry by entry on a matrix; see `ntk_deq.language.functions`.

Last come those that take a parameter besides, a number, and are written out in the others.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ntk_deq.language.calls import Parameter, same_shape
from ntk_deq.language.notation import fenced, word
from ntk_deq.language.number_functions import (
    CURVED,
    NO_MUTANT,
    NO_ORDER,
    OPEN_UNIT,
    PRIMITIVE,
    RIVALS,
    SIGNED_UNIT,
    UPRIGHT,
)
from ntk_deq.language.record import (
    Change,
    Definition,
    Entrywise,
    Function,
    Kink,
    always,
    magnitude,
    positive_part,
)
from ntk_deq.language.types import NOT_NEGATIVE, POSITIVE, UNIT, Range

_P, _C = Parameter, Change
_NO_SLOPE = "0*step(x)"  # the slope of what jumps at zero, where `step` says that there is none

ACTIVATIONS = (
    Function(
        "abs",
        "Entrywise",
        (_P.VALUE,),
        "Absolute value of a scalar or of every entry.",
        same_shape,
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
        lacks={"mutant": NO_MUTANT, "formula": PRIMITIVE},
    ),
    Function(
        "sign",
        "Entrywise",
        (_P.VALUE,),
        "1 where x > 0, -1 where x < 0, 0 at 0.",
        same_shape,
        entrywise=Entrywise(
            growth=1, curvature=0, kink=Kink.JUMP, slopes=(0.0, math.inf), derivative=_NO_SLOPE, primitive="abs(x)"
        ),
        values=always(SIGNED_UNIT),
        mutant=(RIVALS, "step"),
        numpy="np.sign({})",
        lacks={
            "sides": "it is constant on both sides, and jumps",
            "slope": "zero wherever it has one",
            "formula": "it is no formula of continuous functions",
            "above": NO_ORDER,
            "mathml": UPRIGHT,
        },
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
            slopes=(0.0, 1.0),
            sides=(0, 1),
            slope="np.heaviside({}, 0.0)",
            formula="max(x, 0)",
            derivative="step(x)",
            primitive="relu(x)^2/2",
        ),
        values=positive_part,
        numpy="np.maximum({}, 0.0)",
        lacks={
            "above": NO_ORDER,
            "mutant": NO_MUTANT,
            "mathml": UPRIGHT,
        },
    ),
    Function(
        "step",
        "Entrywise",
        (_P.VALUE,),
        "Derivative of relu: 1 where x > 0, otherwise 0 (also at 0).",
        same_shape,
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
        lacks={
            "sides": "it is constant on both sides, and jumps",
            "slope": "zero wherever it has one",
            "formula": "it is no formula of continuous functions",
            "above": NO_ORDER,
            "mutant": NO_MUTANT,
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
            slopes=(0.0, 1.0),
            slope="np.exp(-np.logaddexp(0.0, -({})))",
            formula="log(1 + exp(x))",
            derivative="sigmoid(x)",
        ),
        values=always(POSITIVE),
        above=frozenset({"relu"}),
        mutant=(RIVALS, "relu"),
        numpy="np.logaddexp(0.0, {})",
        lacks={
            "sides": CURVED,
            "primitive": "it has no closed form in functions of the language",
            "mathml": UPRIGHT,
        },
    ),
    Function(
        "tanh",
        "Entrywise",
        (_P.VALUE,),
        "Hyperbolic tangent of a scalar or of every entry.",
        same_shape,
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
        lacks={"mathml": UPRIGHT, "sides": CURVED, "above": NO_ORDER},
    ),
    Function(
        "sigmoid",
        "Entrywise",
        (_P.VALUE,),
        "1/(1 + exp(-x)) of a scalar or of every entry.",
        same_shape,
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
        lacks={
            "sides": CURVED,
            "above": NO_ORDER,
            "mathml": UPRIGHT,
        },
    ),
    Function(
        "huber",
        "Entrywise",
        (_P.VALUE, _P.SCALAR),
        "x^2/2 where abs(x) <= delta, delta*(abs(x) - delta/2) beyond; delta is 1 if left out.",
        same_shape,
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
        lacks={
            "sides": CURVED,
            "primitive": "nobody has asked for it",
            "above": NO_ORDER,
            "mathml": UPRIGHT,
        },
    ),
)
"""Activations, and what comes with them."""

_WRITTEN = {
    "mathml": UPRIGHT,
    "above": NO_ORDER,
    "numpy": "its definition has it, as it has two arguments",
}

WITH_A_PARAMETER = (
    Function(
        "shift",
        "Entrywise",
        (_P.VALUE, _P.SCALAR),
        "x + c of a scalar or of every entry: `shift(A, c)` is A + c*ones(n, m).",
        same_shape,
        definition=Definition(
            names=("x", "c"),
            formula="x + c",
            lipschitz="1",
            proximal=(-math.inf, math.inf),
            primitive="x^2/2 + c*x",
            numpy="(({0}) + ({1}))",
            slope="1.0",
        ),
        lacks={**_WRITTEN, "values": "that of a sum is not among the rules", "mutant": NO_MUTANT},
    ),
    Function(
        "leaky_relu",
        "Entrywise",
        (_P.VALUE, _P.SCALAR),
        "x where x > 0, a*x otherwise, of a scalar or of every entry: `leaky_relu(A, a)`.",
        same_shape,
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
    Function(
        "softthreshold",
        "Entrywise",
        (_P.VALUE, _P.SCALAR),
        "sign(x)*max(abs(x) - t, 0) of a scalar or of every entry, the prox of t*abs(x); t < 0 counts as 0.",
        same_shape,
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
