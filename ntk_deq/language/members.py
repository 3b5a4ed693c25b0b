"""The rules for families in a formula: what brackets may hold, what a letter may run over, shapes for every member."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from ntk_deq.language.families import (
    Family,
    downward,
    index_size,
    member_name,
    reach_of,
    split_member,
    summed,
    type_at,
)
from ntk_deq.language.shapes import Shapes, fail
from ntk_deq.language.steps import unknown
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import BOOLEAN, SCALAR, Reach, Size, SizeRange, Sort, Type

FOLDED = ("sum", "prod", "max", "min", "blockdiag")
"""What can be taken over a range: `sum(norm(W[l]) for l in 1..L)`."""

_PARTS = (Kind.NUMBER, Kind.NAME, Kind.ADD, Kind.SUBTRACT, Kind.NEGATE)


@dataclass(frozen=True)
class Members:
    """The families that a formula may speak of, and the letters that run over ranges where it is read.

    Attributes:
        families: By name: variables, definitions and sizes that have members.
        sizes: Ranges of the size letters.
        letters: What each letter in scope runs over, outermost first.
    """

    families: Mapping[str, Family]
    sizes: Mapping[str, SizeRange]
    letters: Mapping[str, Reach] = field(default_factory=dict)

    def within(self, node: Expr, taken: Set[str]) -> Members:
        """Return the rules inside a sum, product or statement over a range, which is checked.

        Args:
            node: The node.
            taken: Names that have a meaning already.
        """
        reach = reach_of(node)
        if reach.letter in taken or reach.letter in self.letters or reach.letter in self.sizes:
            fail(node.args[-2].span, f"`{reach.letter}` has a meaning already and cannot run over a range.")
        for bound, size in zip(node.args[-2:], (reach.start, reach.stop), strict=True):
            for letter in size.letters - self.letters.keys():
                self._check_letter(letter, bound)
        downward(reach, self.letters, node.args[-2].span)
        return replace(self, letters={**self.letters, reach.letter: reach})

    def _check_letter(self, letter: str, node: Expr) -> None:
        known = letter in self.sizes and self.sizes[letter].over is None
        if not known:
            fail(
                node.span,
                f"`{letter}` is no size letter, so that this range is not known.",
                f"give `{letter}` under `sizes` of the setting",
            )

    def check_index(self, node: Expr) -> None:
        """Refuse a node that cannot be part of an index."""
        if node.kind not in _PARTS:
            fail(node.span, "an index may be made of whole numbers and letters with + and - only.")

    def index(self, node: Expr, steps: Set[str]) -> Type:
        """Return the type of a part of an index, whose letters must have whole numbers as values.

        Args:
            node: The part.
            steps: The step indices in scope.
        """
        if node.kind is Kind.NUMBER:
            index_size(node)
        if node.kind is Kind.NAME and node.name not in self.letters:
            if node.name in steps:
                fail(
                    node.span,
                    f"`{node.name}` is a step, and the first brackets behind a family take a member.",
                    "write the member first, as in W[l][k]",
                )
            if node.name not in self.sizes or self.sizes[node.name].over is not None:
                near = [*self.letters, *(name for name, span in self.sizes.items() if span.over is None)]
                raise unknown(node, near, "letter of an index")
        return SCALAR

    def member_type(self, node: Expr, type_: Type) -> Type:
        """Return the type of a member, of the type that the family has in its own letter."""
        return self.member_at(node.name, index_size(node.args[0]), type_)

    def member_at(self, name: str, index: Size, type_: Type) -> Type:
        """Return the type of the member of a family at an index, of the type that the family has in its own letter."""
        return type_at(type_, {self.families[name].letter: index})

    def replaced(self, written: str, value: Expr) -> tuple[str, Size | None]:
        """Return what `at` replaces: a variable, or a family and the index of a member.

        Args:
            written: The name as written, with the index in brackets.
            value: What it is replaced by, for the place of an error.
        """
        found = split_member(written)
        if found is None or written in self.sizes:
            if written in self.families:
                fail(value.span, f"`at` replaces single variables, and `{written}` is a family.", f"write {written}[1]")
            return written, None
        name, index = found
        if name not in self.families:
            return (written, None) if index.constant is not None else (name, None)
        unknown_letters = sorted(index.letters - self.letters.keys() - self.sizes.keys())
        if unknown_letters:
            fail(value.span, f"unknown letter of an index `{unknown_letters[0]}`.")
        return name, index

    def check_bare(self, node: Expr) -> None:
        """Refuse the name of a family without brackets."""
        family = self.families.get(node.name)
        if family is not None:
            fail(
                node.span,
                f"`{node.name}` is a family: it has the members {family.members(node.name)}.",
                f"write {member_name(node.name, Size.letter(family.letter))} or {node.name}[1]",
            )

    def ranged_type(self, node: Expr, shapes: Shapes, taken_by: str) -> Type:
        """Return the type of what is said or taken over a range, whose body has its type.

        Args:
            node: The node.
            shapes: What is known of sizes.
            taken_by: The function that takes it, for an `OVER` node.
        """
        body = node.args[0]
        assert body.type is not None
        if node.kind is not Kind.OVER:
            if body.type.sort is not Sort.BOOLEAN:
                fail(body.span, f"a statement is needed before `{node.kind}`. Got {shapes.show(body.type)}.")
            return BOOLEAN
        if body.type.sort is Sort.BOOLEAN:
            fail(body.span, f"`{taken_by}` takes numbers or matrices. Got a statement.")
        if taken_by in ("max", "min") and not shapes.is_scalar(body.type):
            fail(body.span, f"`{taken_by}` over a range takes numbers. Got {shapes.show(body.type)}.")
        if body.type.sort is not Sort.MATRIX or taken_by in ("max", "min"):
            return SCALAR
        reach = reach_of(node)
        if taken_by == "prod":
            return self._product(node, body.type, reach, shapes)
        if taken_by == "blockdiag":
            rows, cols = (summed(size, reach, self.letters, body.span) for size in (body.type.rows, body.type.cols))
            return Type(Sort.MATRIX, rows, cols)
        first = type_at(body.type, {reach.letter: reach.start})
        if not shapes.same_shape(first, type_at(body.type, {reach.letter: reach.start + 1})):
            fail(body.span, f"the terms of a sum must have one shape. Got {shapes.show(body.type)}.")
        return first

    def _product(self, node: Expr, type_: Type, reach: Reach, shapes: Shapes) -> Type:
        """Return the type of a product of matrices, factors from left to right in the order of the range."""
        down = downward(reach, self.letters, node.args[-2].span)
        following = type_at(type_, {reach.letter: Size.letter(reach.letter) + (-1 if down else 1)})
        if not shapes.same(type_.cols, following.rows):
            pair = f"{shapes.show(type_)} by the next factor, {shapes.show(following)}"
            hint = None
            turned = type_at(type_, {reach.letter: Size.letter(reach.letter) + (1 if down else -1)})
            if shapes.same(type_.cols, turned.rows):
                hint = f"let the range run {'up' if down else 'down'}, as in {_turned(reach)}"
            fail(
                node.args[0].span,
                f"cannot multiply {pair}: inner sizes {type_.cols} and {following.rows} differ.",
                hint,
            )
        rows = type_at(type_, {reach.letter: reach.start}).rows
        return Type(Sort.MATRIX, rows, type_at(type_, {reach.letter: reach.stop}).cols)


def _turned(reach: Reach) -> str:
    start, _, stop = reach.text.partition(" in ")[2].partition("..")
    return f"{reach.letter} in {stop}..{start}"
