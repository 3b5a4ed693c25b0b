"""What stands in the brackets behind a name: layers of a family, steps and times of a run.

Which names carry an index, what an index may be, what a letter or a quantifier may range over, shapes for every
member; which step an index denotes, and which formulas are the same one at given steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from operator import eq, ge, gt, le, lt, ne

from ntk_deq.errors import ExpressionError
from ntk_deq.language.families import Family, downward, index_size, member_name, reach_of, split_member, summed, type_at
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.hints import hint_for
from ntk_deq.language.shapes import Shapes, fail
from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind
from ntk_deq.language.types import BOOLEAN, SCALAR, STEP, TIME, Reach, Size, SizeRange, Sort, Type

_PARTS = (Kind.NUMBER, Kind.NAME, Kind.ADD, Kind.SUBTRACT, Kind.NEGATE)


@dataclass(frozen=True)
class Index:
    """What the index of a run counts, and the words for it.

    Attributes:
        type: Its type in formulas.
        whole: Whether it is a whole number, each followed by a next one.
        word: One value of it.
        many: Several of them.
        parts: What such a value may be made of.
        change: How that changes which carries one.
        extent: How much of it there is, as in "steps to the floor".
        each: What a rate is counted per.
    """

    type: Type
    whole: bool
    word: str
    many: str
    parts: str
    change: str
    extent: str
    each: str


STEPS = Index(STEP, True, "step", "step indices", "integers and step indices", "with the step", "steps", "per step")
TIMES = Index(TIME, False, "time", "times", "numbers and times", "with time", "time", "per unit of time")
INDICES = {index.type: index for index in (STEPS, TIMES)}
"""Indices by their types."""


@dataclass(frozen=True)
class Steps:
    """The rules for steps in one formula; where the index is a time, those for times.

    Attributes:
        environment: Types of all names.
        indexed: Names that may carry a step.
        trajectory: Types of the names that have a value at a step only.
        index: `STEP` or `TIME`.
        any: Whether there is a run, so that a quantifier has something to range over.
        numbers: Whether every step of the run is known, so that a condition may compare it with numbers, and a
            statement be about some step.
    """

    environment: Mapping[str, Type]
    indexed: frozenset[str]
    trajectory: Mapping[str, Type]
    index: Type
    any: bool
    numbers: bool = False

    def check_part(self, node: Expr, *, bracket: bool) -> None:
        """Refuse a node that cannot be part of a step.

        Args:
            node: The node.
            bracket: Whether it stands in Z[...], otherwise behind `with`.
        """
        if bracket and not self._index.whole and node.kind is not Kind.NAME and not _is_zero(node):
            fail(node.span, "a time is 0 or the index alone: gradient-flow has no numbered steps and no next one.")
        if node.kind not in _PARTS:
            fail(node.span, f"a {self._index.word} may be made of {self._index.parts} with + and - only.")

    def check_condition(self, node: Expr) -> None:
        """Refuse what is no condition on steps behind `with`."""
        if node.kind not in (Kind.COMPARE, Kind.AND, Kind.OR, Kind.NOT):
            fail(node.span, f"`with` takes comparisons of {self._index.many}, such as p <= q.")

    def check_quantifier(self, node: Expr, sizes: Iterable[str]) -> None:
        """Refuse a quantifier without a run, and index names that have a meaning already or do not occur."""
        if not self.any:
            fail(node.span, f"`{node.kind}` ranges over the steps of a run, and nothing here has steps.")
        if node.kind is Kind.FOR_SOME and not self.numbers:
            fail(node.span, "`for some` speaks of a run in steps that are all known: of a recursion, or of the map.")
        taken = {*self.environment, *self.trajectory, *sizes}
        used = {child.name for child in node.walk() if child.kind is Kind.NAME}
        for name in node.names:
            if name in taken:
                fail(node.span, f"`{name}` has a meaning already and cannot be a {self.index}.")
            if name not in used:
                fail(node.span, f"`{node.kind} {name}`: `{name}` does not occur in the statement.")

    def step(self, node: Expr, bound: frozenset[str]) -> Type:
        """Return the type of a part of a step; `bound` are the index names in scope."""
        if node.kind is Kind.NUMBER and node.value is not None and node.value.denominator != 1 and self._index.whole:
            fail(node.span, f"a step must be an integer. Got {float(node.value):g}.")
        if node.kind is Kind.NAME and node.name not in bound:
            hint = f"add `for all {node.name}` at the end of the statement"
            if self.trajectory:
                hint += f"; a definition takes its names without a {self._index.word}"
            known = node.name in self.environment or node.name in self.trajectory
            fail(node.span, f"`{node.name}` is no {self.index} here.", None if known else hint)
        return self.index

    def indexed_type(self, node: Expr) -> Type:
        """Return the type of a name at a step."""
        if node.name in self.indexed and node.name in self.environment:
            return self.environment[node.name]
        if node.name in self.trajectory:
            return self.trajectory[node.name]
        if node.name in self.environment:
            carriers = ", ".join(sorted(self.indexed)) or "nothing in this claim"
            fail(
                node.span,
                f"`{node.name}` does not change {self._index.change}.",
                f"what carries a {self._index.word}: {carriers}",
            )
        raise unknown(node, self.indexed or self.environment)

    def check_bare(self, node: Expr) -> None:
        """Refuse a name without a step that has a value at a step only."""
        if node.name in self.trajectory:
            fail(node.span, f"`{node.name}` has a value at a {self._index.word} only.", f"write {node.name}[...]")

    @property
    def _index(self) -> Index:
        return INDICES[self.index]


def unknown(node: Expr, allowed: Iterable[str], what: str = "name") -> ExpressionError:
    """Return the error that a name has no meaning, with the nearest one that has."""
    stop = node.span.start + len(node.name)
    hint = hint_for(node.name, allowed, called=node.kind is Kind.CALL)
    return ExpressionError(f"unknown {what} `{node.name}`.", (node.span.start, stop), hint)


def _is_zero(node: Expr) -> bool:
    return node.kind is Kind.NUMBER and node.value == 0


Indices = Mapping[str, float]


def step_of(expr: Expr, indices: Indices) -> float:
    """Return the step that an index expression denotes; for gradient flow a time."""
    if expr.kind is Kind.NUMBER and expr.value is not None:
        return int(expr.value)
    if expr.kind is Kind.NAME:
        return indices[expr.name]
    if expr.kind is Kind.NEGATE:
        return -step_of(expr.args[0], indices)
    left, right = (step_of(arg, indices) for arg in expr.args)
    return left + right if expr.kind is Kind.ADD else left - right


def same_at(left: Expr, right: Expr, indices: Indices, still: bool) -> bool:
    """Whether two formulas are the same one at these steps, so that their values are equal whatever they are."""
    if left.kind is Kind.INDEX and right.kind is Kind.INDEX:
        at_one_step = still or step_of(left.args[0], indices) == step_of(right.args[0], indices)
        return left.name == right.name and at_one_step
    if left.name in indices and right.name in indices:
        return indices[left.name] == indices[right.name]
    head = (left.kind, left.name, left.value, left.names, left.operators)
    if head != (right.kind, right.name, right.value, right.names, right.operators) or left.kind in QUANTIFIERS:
        return False
    return len(left.args) == len(right.args) and all(
        map(same_at, left.args, right.args, repeat(indices), repeat(still))
    )


def index_names(expr: Expr) -> set[str]:
    """Return the step indices of an index expression; those of a quantifier further in have no value yet."""
    return {node.name for node in expr.walk() if node.kind is Kind.NAME}


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """Yield the parts of a statement that all have to be true."""
    for part in expr.args if expr.kind is Kind.AND else (expr,):
        yield from conjuncts(part) if part.kind is Kind.AND else (part,)


def steps_in(expr: Expr) -> set[str]:
    """Return the step indices in a typed formula."""
    return {node.name for node in expr.walk() if node.kind is Kind.NAME and node.type and node.type.sort.is_index}


def upper_bounds(expr: Expr) -> Iterator[Expr]:
    """Yield comparisons that bound the index of a quantifier from above, by what does not change with it."""
    name = expr.names[0]
    for part in conjuncts(expr.args[1]) if len(expr.args) > 1 else ():
        for left, relation, right in part.links:
            small, large = (left, right) if relation in ("<=", "<") else (right, left)
            free = not any(node.name == name for node in large.walk())
            if relation in ("<=", "<", ">=", ">") and small.kind is Kind.NAME and small.name == name and free:
                yield replace(part, args=(left, right), operators=(relation,))


def is_bounded(expr: Expr) -> bool:
    """Whether the index of a quantifier ranges up to a number, so that a statement speaks of so many steps alone."""
    return len(expr.names) == 1 and any(steps_in(bound) <= {*expr.names} for bound in upper_bounds(expr))


def ranges_inside(expr: Expr) -> Iterator[Expr]:
    """Yield the quantifiers of a statement, the outermost ones, that speak of every step of theirs."""
    if expr.kind not in QUANTIFIERS:
        for arg in expr.args:
            yield from ranges_inside(arg)
    elif expr.kind is Kind.FOR_ALL:
        yield expr


def shown_by_steps(expr: Expr, indices: Indices) -> bool | None:
    """Return whether a condition on steps is true, as whole numbers; None where it compares something else with them.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> shown_by_steps(parse("j <= k - 1"), {"j": 2, "k": 3}), shown_by_steps(parse("j <= T"), {"j": 2})
        (True, None)
    """
    if expr.kind is Kind.COMPARE:
        if any(
            node.kind not in _PARTS
            or (node.kind is Kind.NAME and node.name not in indices)
            or (node.value is not None and node.value.denominator != 1)
            for arg in expr.args
            for node in arg.walk()
        ):
            return None
        values = [step_of(arg, indices) for arg in expr.args]
        return all(_RELATIONS[relation](*pair) for relation, pair in zip(expr.operators, pairwise(values), strict=True))
    if expr.kind not in (Kind.AND, Kind.OR, Kind.NOT):
        return None
    parts = [shown_by_steps(arg, indices) for arg in expr.args]
    if None in parts:
        return None
    return not parts[0] if expr.kind is Kind.NOT else (all if expr.kind is Kind.AND else any)(parts)


_RELATIONS = {"<=": le, "<": lt, ">=": ge, ">": gt, "==": eq, "!=": ne}


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
        fold = FOLDS[taken_by]
        if fold.of_numbers and not shapes.is_scalar(body.type):
            fail(body.span, f"`{taken_by}` over a range takes numbers. Got {shapes.show(body.type)}.")
        if body.type.sort is not Sort.MATRIX or fold.of_numbers:
            return SCALAR
        reach = reach_of(node)
        if fold.joins is Kind.MULTIPLY:
            return self._product(node, body.type, reach, shapes)
        if fold.joins is None:
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
