"""The functions of the claim language: one record for each, which says what is true of it wherever it is asked for.

The records themselves are in `activation_functions` and `number_functions`, of one number, which act on a matrix entry
by entry, and in `matrix_functions`. What computes the former are twins in `ntk_deq.evaluation.functions.entrywise`.
"""

from __future__ import annotations

from ntk_deq.language.activation_functions import ACTIVATIONS, WITH_A_PARAMETER
from ntk_deq.language.functionals import TO_NUMBERS
from ntk_deq.language.matrix_functions import OF_FUNCTIONS, OF_MATRICES, OF_THE_MODEL
from ntk_deq.language.number_functions import CONSTANTS, OF_NUMBERS, RIVALS
from ntk_deq.language.pieces import PIECES
from ntk_deq.language.record import Entrywise, Function, Kink

__all__ = ["FUNCTIONS", "RIVALS", "entrywise_of", "kink_of", "reference"]

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
