"""The tree of an expression of the claim language: one uniform, immutable node that every backend walks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ntk_deq.claims.types import Type


class Kind(StrEnum):
    """What a node is."""

    NUMBER = "number"  # value
    NAME = "name"  # name
    INDEX = "index"  # name[args[0]]: a quantity at a step
    CALL = "call"  # name(args...)
    AT = "at"  # at(args[0], names[0] = args[1], ...): a model quantity with some variables replaced
    NEGATE = "negate"  # -args[0]
    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"  # scalar or matrix product
    DIVIDE = "divide"  # by a scalar
    POWER = "power"  # scalar^scalar, or square matrix^integer
    TRANSPOSE = "transpose"  # args[0]'
    COMPARE = "compare"  # args[0] operators[0] args[1] operators[1] ...; operators among <= < >= > == !=
    AND = "and"
    OR = "or"
    NOT = "not"
    FOR_ALL = "for all"  # args[0] for all names [with args[1]]: names are step indices


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node stands in its source text: offsets from 0, `stop` excluded."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Expr:
    """A node. `type` is None as parsed and set by `ntk_deq.claims.typing.infer`."""

    kind: Kind
    span: Span
    args: tuple[Expr, ...] = ()
    name: str = ""
    names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    value: Fraction | None = None
    type: Type | None = None

    def walk(self) -> Iterator[Expr]:
        """Yield this node and every node below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.args))
