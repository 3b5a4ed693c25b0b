"""Row programs in floating point: values, and cotangents in reverse, without a graph of automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.evaluation.functions.floats import FUNCTIONS, scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr
from ntk_deq.systems.fixed_values import FixedValues
from ntk_deq.systems.parameter_slopes import RankOne, Total


@dataclass(frozen=True, eq=False)
class Occurrence:
    """Where a formula free of samples stands in a program, with what passes there: its slope is the sum over samples.

    For a matrix M in `rows @ M` (or `rows @ M'` where it is flipped) sample n's slope is the outer product of its row
    before the product and its cotangent behind; for a number it is their inner product.

    Attributes:
        expr: The formula.
        before: One row a sample; None: a one.
        behind: Likewise.
        flipped: Whether M stands transposed.
        number: Whether the formula is a number.
    """

    expr: Expr
    before: Float[Tensor, "N _"] | None
    behind: Float[Tensor, "N _"] | None
    flipped: bool = False
    number: bool = False

    def each(self) -> RankOne:
        """Return the slope of each sample."""
        if self.number:
            return RankOne(self._products().sum(1, keepdim=True), None)
        found = RankOne(self.before, self.behind)
        return found.transposed() if self.flipped else found

    def total(self) -> Total:
        """Return the slope of the sum over samples."""
        if self.number:
            return Total(self._products().sum().reshape(1, 1))
        if self.before is None or self.behind is None:
            (given,) = (factor for factor in (self.before, self.behind) if factor is not None)
            total = given.sum(0, keepdim=True)
            total = total if self.before is None else total.mT
        else:
            total = self.before.mT @ self.behind
        return Total(total.mT if self.flipped else total)

    def _products(self) -> Tensor:
        given = [factor for factor in (self.before, self.behind) if factor is not None]
        return given[0] if len(given) == 1 else given[0] * given[1]


class RowProgram:
    """A step with all below it, in an order of evaluation.

    Args:
        root: The step whose value is wanted.
        parametric: Tells whether a formula depends on a parameter.

    Attributes:
        steps: In order of evaluation; the root comes last.
        moving: Those that depend on the state.
        trained: Those on which a parameter has an influence, their own or one further down.
    """

    def __init__(self, root: Row, parametric: Callable[[Expr], bool]) -> None:
        self.root, self.steps = root, root.steps()
        self.moving = [step for step in self.steps if step.moving]
        self.trained: set[Row] = set()
        for step in self.steps:
            if any(map(parametric, step.fixed)) or any(arg in self.trained for arg in step.args):
                self.trained.add(step)
        self.reads_state = any(step.op is Op.STATE for step in self.steps)
        uses = [arg for step in self.moving for arg in step.args]
        # Products that only a sum needs are added to it as they are formed.
        self.fused = {
            step
            for step in self.moving
            if step.op is Op.PRODUCT and uses.count(step) == 1 and step is not root and self._user(step).op is Op.SUM
        }

    def _user(self, step: Row) -> Row:
        return next(user for user in self.moving if step in user.args)

    def at(self, X: Float[Tensor, "N d"], fixed: FixedValues) -> PreparedRows:
        """Return the program at given inputs and parameters, with all that does not depend on the state worked out.

        Args:
            X: Inputs, one sample a row.
            fixed: Parameters.
        """
        return PreparedRows(self, X, fixed)


class PreparedRows:
    """A program at given inputs and parameters.

    Args:
        program: The program.
        X: Inputs, one sample a row.
        fixed: Parameters.
    """

    def __init__(self, program: RowProgram, X: Float[Tensor, "N d"], fixed: FixedValues) -> None:
        self.program, self.fixed, self._X = program, fixed, X
        self._still: dict[Row, Tensor] = {}
        self._matrices: dict[Row, Tensor] = {}
        for step in program.steps:
            if step.op is Op.PRODUCT:
                matrix = fixed.value(step.fixed[0])
                self._matrices[step] = matrix.mT if step.flipped else matrix
            if not step.moving:
                self._still[step] = self._evaluated(step, self._still)

    def value(self, Z: Float[Tensor, "N m"]) -> Float[Tensor, "N _"]:
        """Return the value at a state.

        Args:
            Z: The state, one sample a row.
        """
        return self._all(Z)[self.program.root]

    __call__ = value

    def _all(self, Z: Tensor, *, keep: bool = False) -> dict[Row, Tensor]:
        values = dict(self._still)
        for step in self.program.moving:
            if step.op is Op.STATE:
                values[step] = Z
            elif keep or step not in self.program.fused:
                values[step] = self._evaluated(step, values)
        return values

    def _evaluated(self, step: Row, values: dict[Row, Tensor]) -> Tensor:
        match step.op:
            case Op.INPUT:
                return self._X
            case Op.CONSTANT:
                return self._X.new_full((self._X.shape[0], step.width.evaluate(_whole(self.fixed))), step.value)
            case Op.PRODUCT:
                return values[step.args[0]] @ self._matrices[step]
            case Op.SCALE:
                return values[step.args[0]] * self.fixed.number(step.fixed[0])
            case Op.SUM:
                return self._sum(step, values)
            case Op.HADAMARD:
                return values[step.args[0]] * values[step.args[1]]
            case _:
                return self.function(step)(values[step.args[0]])

    def _sum(self, step: Row, values: dict[Row, Tensor]) -> Tensor:
        total: Tensor | None = None
        later = []
        for arg, sign in sorted(zip(step.args, step.signs, strict=True), key=lambda term: term[0] not in values):
            if arg not in values:
                later.append((arg, sign))
            elif total is None:
                total = values[arg] if sign > 0 else -values[arg]
            else:
                total = torch.add(total, values[arg], alpha=sign)
        for arg, sign in later:
            before, matrix = values[arg.args[0]], self._matrices[arg]
            if total is None:
                total = before @ matrix if sign > 0 else -(before @ matrix)
            else:
                total = torch.addmm(total, before, matrix, alpha=sign)
        assert total is not None  # a sum has terms
        return total

    def function(self, step: Row) -> Callable[[Tensor], Tensor]:
        """Return the function of an entrywise step, with its other arguments put in.

        Args:
            step: The step.
        """
        numbers = [self.fixed.number(expr) for expr in step.fixed]
        return lambda row: entrywise(step, self.fixed.like, row, numbers)

    def linearised(self, Z: Float[Tensor, "N m"]) -> LinearRows:
        """Return the derivative at a state.

        Args:
            Z: The state, one sample a row.
        """
        return LinearRows(self, self._all(Z, keep=True))

    def matrix(self, step: Row) -> Tensor:
        """Return the matrix that a product multiplies rows with."""
        return self._matrices[step]


def entrywise(step: Row, like: Tensor, row: Tensor, numbers: Sequence[Tensor]) -> Tensor:
    """Return the value of an entrywise step.

    Args:
        step: The step.
        like: A tensor with the dtype and device of the result.
        row: The argument with samples.
        numbers: The others.
    """
    args = [*numbers[: step.place], row, *numbers[step.place :]]
    return FUNCTIONS[step.name](like, *args)


def _whole(fixed: FixedValues) -> dict[str, int]:
    return {letter: int(size) for letter, size in fixed.sizes.items()}


class LinearRows:
    """The derivative of a program at a state: cotangents in reverse.

    Args:
        rows: The program at given inputs and parameters.
        values: The value of each step.
    """

    def __init__(self, rows: PreparedRows, values: dict[Row, Tensor]) -> None:
        self._rows, self.values = rows, values
        self._slopes: dict[Row, Tensor] = {}

    @property
    def value(self) -> Tensor:
        """The program's value."""
        return self.values[self._rows.program.root]

    def slope(self, step: Row) -> Tensor:
        """Return the slopes of an entrywise step at its argument, with those of relu and abs zero at zero.

        Args:
            step: The step.
        """
        if step not in self._slopes:
            at, facts = self.values[step.args[0]], entrywise_of(step.name)
            if facts is not None and facts.sides == (0, 1):
                found = (at > 0).to(at.dtype)
            else:
                found = torch.func.vjp(self._rows.function(step), at)[1](torch.ones_like(at))[0]
            self._slopes[step] = found
        return self._slopes[step]

    def passed(self, step: Row, cotangent: Tensor) -> list[Tensor]:
        """Return what a step passes back to each of its arguments.

        Args:
            step: The step.
            cotangent: Of its value.
        """
        rows = self._rows
        match step.op:
            case Op.PRODUCT:
                return [cotangent @ rows.matrix(step).mT]
            case Op.SCALE:
                return [cotangent * rows.fixed.number(step.fixed[0])]
            case Op.SUM:
                return [cotangent if sign > 0 else -cotangent for sign in step.signs]
            case Op.HADAMARD:
                left, right = (self.values[arg] for arg in step.args)
                return [cotangent * right, cotangent * left]
            case Op.ENTRYWISE:
                return [cotangent * self.slope(step)]
        return []

    def pulled(self, cotangent: Float[Tensor, "N _"], onto: Float[Tensor, "N m"] | None = None) -> Tensor | None:
        """Return the cotangent of the state, added to `onto` where that is given; None: no state is read.

        Args:
            cotangent: Of the program's value.
            onto: What it is added to.
        """
        program, found = self._rows.program, {self._rows.program.root: cotangent}
        state = next((step for step in program.moving if step.op is Op.STATE), None)
        if state is None:
            return onto
        if onto is not None:
            found[state] = onto if state is not program.root else onto + cotangent
        for step in reversed(program.moving):
            own = found.get(step)
            if own is None or step is state:
                continue
            if step.op is Op.PRODUCT and step.args[0] is state and state in found:
                found[state] = torch.addmm(found[state], own, self._rows.matrix(step).mT)
                continue
            for arg, part in zip(step.args, self.passed(step, own), strict=True):
                if arg.moving:
                    found[arg] = found[arg] + part if arg in found else part
        return found.get(state)

    def occurrences(
        self, cotangent: Float[Tensor, "N _"], parametric: Callable[[Expr], bool], *, unit: bool = False
    ) -> list[Occurrence]:
        """Return where formulas of parameters stand, with what passes there.

        Args:
            cotangent: Of the program's value.
            parametric: Tells whether a formula depends on a parameter.
            unit: Whether the cotangent is a column of ones.
        """
        program, found = self._rows.program, {self._rows.program.root: cotangent}
        places: list[Occurrence] = []
        for step in reversed(program.steps):
            own = found.get(step)
            if own is None or step not in program.trained:
                continue
            places += self._own(step, own, parametric, unit=unit and own is cotangent)
            needed = [arg in program.trained for arg in step.args]
            if any(needed):
                for arg, part, need in zip(step.args, self.passed(step, own), needed, strict=True):
                    if need:
                        found[arg] = found[arg] + part if arg in found else part
        return places

    def _own(self, step: Row, cotangent: Tensor, parametric: Callable[[Expr], bool], *, unit: bool) -> list[Occurrence]:
        """Return the places of a step's own formulas."""
        if not any(map(parametric, step.fixed)):
            return []
        arg = step.args[0]
        if step.op is Op.PRODUCT:
            one = arg.op is Op.CONSTANT and arg.value == 1 and self.values[arg].shape[-1] == 1 and not unit
            before, behind = None if one else self.values[arg], None if unit else cotangent
            return [Occurrence(step.fixed[0], before, behind, step.flipped)]
        if step.op is Op.SCALE:
            return [Occurrence(step.fixed[0], self.values[arg], cotangent, number=True)]
        numbers = [scalar(self._rows.fixed.value(expr)) for expr in step.fixed]
        places = []
        for index, expr in enumerate(step.fixed):
            if parametric(expr):
                moved = self._by_number(step, numbers, index)
                places.append(Occurrence(expr, moved, cotangent, number=True))
        return places

    def _by_number(self, step: Row, numbers: list[Tensor], index: int) -> Tensor:
        """Return the derivative of an entrywise step in one of its numbers."""
        row, like = self.values[step.args[0]], self._rows.fixed.like

        def at(number: Tensor) -> Tensor:
            return entrywise(step, like, row, [*numbers[:index], number, *numbers[index + 1 :]])

        return torch.func.jvp(at, (numbers[index],), (torch.ones_like(numbers[index]),))[1]
