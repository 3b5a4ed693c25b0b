"""Row programs in floating point: values, and cotangents in reverse, without a graph of automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.evaluation.functions.floats import FUNCTIONS
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr
from ntk_deq.systems.fixed_values import FixedValues
from ntk_deq.systems.parameter_slopes import RankOne, Total, norm_bound


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
        root: That step.
        steps: In order of evaluation; the root comes last.
        parametric: As given.
        moving: Those that depend on the state.
        trained: Those on which a parameter has an influence, their own or one further down.
        between: Those and the steps that depend on the state.
        fused: Products that only a sum needs, added to it as they are formed.
    """

    def __init__(self, root: Row, parametric: Callable[[Expr], bool]) -> None:
        self.root, self.steps, self.parametric = root, root.steps(), parametric
        self.moving = [step for step in self.steps if step.moving]
        self.trained: set[Row] = set()
        for step in self.steps:
            if any(map(parametric, step.fixed)) or any(arg in self.trained for arg in step.args):
                self.trained.add(step)
        self.between = self.trained.union(step for step in self.moving if step.op is not Op.STATE)
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
        self.count = X.shape[0]
        self.still: dict[Row, Tensor] = {}
        self._matrices: dict[Row, Tensor] = {}
        for step in program.steps:
            if step.op is Op.PRODUCT:
                matrix = fixed.value(step.fixed[0])
                self._matrices[step] = matrix.mT if step.flipped else matrix
            if not step.moving:
                self.still[step] = self.evaluated(step, self.still)

    def of_rows(self, rows: Int[Tensor, " n"]) -> PreparedRows:
        """Return the program at some of the inputs.

        Args:
            rows: Which.
        """
        found = copy(self)
        found._X, found.count = self._X[rows], rows.shape[0]
        found.still = {step: value[rows] for step, value in self.still.items()}
        return found

    def value(self, Z: Float[Tensor, "N m"]) -> Float[Tensor, "N _"]:
        """Return the value at a state.

        Args:
            Z: The state, one sample a row.
        """
        return self.values(Z)[self.program.root]

    __call__ = value

    def values(self, Z: Float[Tensor, "N m"], *, root: bool = True) -> dict[Row, Tensor]:
        """Return the values of all steps at a state, but for products that are only added to something.

        Args:
            Z: The state.
            root: Whether that of the last step, too.
        """
        values = dict(self.still)
        for step in self.program.moving if root else self.program.moving[:-1]:
            if step.op is Op.STATE:
                values[step] = Z
            elif step not in self.program.fused:
                values[step] = self.evaluated(step, values)
        return values

    def evaluated(self, step: Row, values: Mapping[Row, Tensor]) -> Tensor:
        """Return the value of a step from those of its arguments."""
        match step.op:
            case Op.INPUT:
                return self._X
            case Op.CONSTANT:
                width = step.width.evaluate({letter: int(size) for letter, size in self.fixed.sizes.items()})
                return self._X.new_full((self._X.shape[0], width), step.value)
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

    def _sum(self, step: Row, values: Mapping[Row, Tensor]) -> Tensor:
        total: Tensor | None = None
        later = []
        for arg, sign in zip(step.args, step.signs, strict=True):
            if arg in self.program.fused:
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

    def linearised(self, Z: Float[Tensor, "N m"], *, fixed_point: bool = False) -> LinearRows:
        """Return the derivative at a state.

        Args:
            Z: The state, one sample a row.
            fixed_point: Whether the value there is known to be the state itself.
        """
        return LinearRows(self, Z, fixed_point=fixed_point)

    def matrix(self, step: Row) -> Tensor:
        """Return the matrix that a product multiplies rows with.

        Args:
            step: The product.
        """
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


def has_corner(step: Row) -> bool:
    """Whether a step is a function with a corner or a jump, whose argument depends on the side."""
    return step.op is Op.ENTRYWISE and kink_of(step.name) in (Kink.CORNER, Kink.JUMP)


def cuts(step: Row) -> bool:
    """Whether a step is relu: its value is positive exactly where its slope is one, and is zero elsewhere."""
    facts = entrywise_of(step.name) if step.op is Op.ENTRYWISE else None
    return facts is not None and facts.sides == (0, 1)


class LinearRows:
    """The derivative of a program at a state: cotangents in reverse.

    Args:
        rows: The program at given inputs and parameters.
        Z: The state.
        fixed_point: Whether the program's value there is the state itself.
    """

    def __init__(self, rows: PreparedRows, Z: Float[Tensor, "N m"], *, fixed_point: bool = False) -> None:
        self._rows, self._known = rows, dict(rows.still)
        program = rows.program
        self.state = next((step for step in program.moving if step.op is Op.STATE), None)
        if self.state is not None:
            self._known[self.state] = Z
        # The product whose pullback is the last to be added to the state's.
        readers = [step for step in program.moving if self.state in step.args]
        self._last = readers[0] if readers and readers[0].op is Op.PRODUCT else None
        if fixed_point:
            self._known[program.root] = Z
        self._slopes: dict[Row, Tensor] = {}
        self._norms: dict[Row, Tensor] = {}

    @property
    def root(self) -> Row:
        """The step whose value is the program's."""
        return self._rows.program.root

    @property
    def steps(self) -> list[Row]:
        """All steps, in order of evaluation."""
        return self._rows.program.steps

    @property
    def moving(self) -> list[Row]:
        """Those that depend on the state."""
        return self._rows.program.moving

    @property
    def count(self) -> int:
        """The number of samples."""
        return self._rows.count

    def norm(self, step: Row) -> Tensor:
        """Return a bound of the spectral norm of a product's matrix."""
        if step not in self._norms:
            self._norms[step] = norm_bound(self._rows.matrix(step))
        return self._norms[step]

    def number(self, step: Row) -> Tensor:
        """Return the number of a scaling step."""
        return self._rows.fixed.number(step.fixed[0])

    def of_rows(self, rows: Int[Tensor, " n"]) -> LinearRows:
        """Return the derivative at some samples.

        Args:
            rows: Which.
        """
        found = copy(self)
        found._rows = self._rows.of_rows(rows)
        found._known = {step: value[rows] for step, value in self._known.items()}
        found._slopes = {step: value[rows] for step, value in self._slopes.items()}
        return found

    @property
    def value(self) -> Tensor:
        """The program's value."""
        return self.at(self._rows.program.root)

    def at(self, step: Row) -> Tensor:
        """Return the value of a step, worked out where it is first asked for.

        Args:
            step: The step.
        """
        if step not in self._known:
            for arg in step.args:
                if not (step.op is Op.SUM and arg in self._rows.program.fused):
                    self.at(arg)
                else:
                    self.at(arg.args[0])
            self._known[step] = self._rows.evaluated(step, self._known)
        return self._known[step]

    def slope(self, step: Row) -> Tensor:
        """Return the slopes of an entrywise step at its argument, with that of relu zero at zero.

        Args:
            step: The step.
        """
        if step not in self._slopes:
            if cuts(step):
                # relu's value is positive where its argument is, and may be known without it.
                at = self._known[step] if step in self._known else self.at(step.args[0])
                self._slopes[step] = (at > 0).to(at.dtype)
            else:
                at = self.at(step.args[0])
                self._slopes[step] = torch.func.vjp(self._rows.function(step), at)[1](torch.ones_like(at))[0]
        return self._slopes[step]

    def curvature(self, step: Row) -> Tensor:
        """Return the largest second derivative of an entrywise step, by size, where it has one."""
        facts = entrywise_of(step.name)
        at = self.at(step.args[0])
        if facts is None or facts.sides is not None:
            return at.new_zeros(())
        function = self._rows.function(step)

        def slopes(row: Tensor) -> Tensor:
            found: Tensor = torch.func.vjp(function, row)[1](torch.ones_like(row))[0]
            return found

        found: Tensor = torch.func.vjp(slopes, at)[1](torch.ones_like(at))[0]
        return largest(found)

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
                left, right = (self.at(arg) for arg in step.args)
                return [cotangent * right, cotangent * left]
            case Op.ENTRYWISE:
                return [cotangent * self.slope(step)]
        return []

    def pulled(
        self,
        cotangent: Float[Tensor, "N _"],
        onto: Float[Tensor, "N m"] | None = None,
        out: Float[Tensor, "N m"] | None = None,
    ) -> Tensor | None:
        """Return the cotangent of the state, added to `onto` where that is given; None: no state is read.

        Args:
            cotangent: Of the program's value.
            onto: What it is added to.
            out: Where a result may lie, which then is this very tensor; it may be none of the others.
        """
        program, state = self._rows.program, self.state
        if state is None:
            return onto
        found = {program.root: cotangent}
        if onto is not None:
            found[state] = onto if state is not program.root else onto + cotangent
        for step in reversed(program.moving):
            own = found.get(step)
            if own is None or step is state:
                continue
            if step.op is Op.PRODUCT and step.args[0] is state and state in found:
                last = out if step is self._last else None
                found[state] = torch.addmm(found[state], own, self._rows.matrix(step).mT, out=last)
                continue
            for arg, part in zip(step.args, self.passed(step, own), strict=True):
                if arg.moving:
                    found[arg] = found[arg] + part if arg in found else part
        return found.get(state)

    def jacobian(self) -> Float[Tensor, "N m m"]:
        """Return the derivative of each sample's value in its state, whose width is the same."""
        width = self.value.shape[1]
        rows = []
        for place in range(width):
            unit = torch.zeros_like(self.value)
            unit[:, place] = 1.0
            found = self.pulled(unit)
            assert found is not None  # a map that has a Jacobian reads the state
            rows.append(found)
        return torch.stack(rows, dim=1)

    def cotangents(self, cotangent: Float[Tensor, "N _"], *, state: bool = False) -> dict[Row, Tensor]:
        """Return those of all steps on which a parameter has an influence.

        Args:
            cotangent: Of the program's value.
            state: Whether those on which the state has one are wanted too, itself not among them.
        """
        program, found = self._rows.program, {self._rows.program.root: cotangent}
        wanted = program.between if state else program.trained
        for step in reversed(program.steps):
            own = found.get(step)
            if own is None or wanted.isdisjoint(step.args):
                continue
            for arg, part in zip(step.args, self.passed(step, own), strict=True):
                if arg in wanted:
                    found[arg] = found[arg] + part if arg in found else part
        return found

    def occurrences(self, cotangent: Float[Tensor, "N _"], *, unit: bool = False) -> list[Occurrence]:
        """Return where formulas of parameters stand, with what passes there.

        Args:
            cotangent: Of the program's value.
            unit: Whether it is a column of ones.
        """
        return self.all_places(self.cotangents(cotangent), cotangent if unit else None)

    def all_places(self, cotangents: Mapping[Row, Tensor], ones: Tensor | None = None) -> list[Occurrence]:
        """Return the same, from the cotangents of all steps.

        Args:
            cotangents: By step.
            ones: That of the program's value, where it is a column of ones.
        """
        return [place for step, own in cotangents.items() for place in self.places(step, own, unit=own is ones)]

    def places(self, step: Row, cotangent: Float[Tensor, "N _"], *, unit: bool = False) -> list[Occurrence]:
        """Return the places of a step's own formulas.

        Args:
            step: The step.
            cotangent: Of its value.
            unit: Whether that is a column of ones.
        """
        parametric = self._rows.program.parametric
        if not any(map(parametric, step.fixed)):
            return []
        arg = step.args[0]
        if step.op is Op.PRODUCT:
            one = arg.op is Op.CONSTANT and arg.value == 1 and self.at(arg).shape[-1] == 1 and not unit
            before, behind = None if one else self.at(arg), None if unit else cotangent
            return [Occurrence(step.fixed[0], before, behind, step.flipped)]
        if step.op is Op.SCALE:
            return [Occurrence(step.fixed[0], self.at(arg), cotangent, number=True)]
        numbers = [self._rows.fixed.number(expr) for expr in step.fixed]
        return [
            Occurrence(expr, self._by_number(step, numbers, index), cotangent, number=True)
            for index, expr in enumerate(step.fixed)
            if parametric(expr)
        ]

    def _by_number(self, step: Row, numbers: list[Tensor], index: int) -> Tensor:
        """Return the derivative of an entrywise step in one of its numbers."""
        row, like = self.at(step.args[0]), self._rows.fixed.like

        def at(number: Tensor) -> Tensor:
            return entrywise(step, like, row, [*numbers[:index], number, *numbers[index + 1 :]])

        moved: Tensor = torch.func.jvp(at, (numbers[index],), (torch.ones_like(numbers[index]),))[1]
        return moved


def largest(value: Tensor) -> Tensor:
    """Return the largest entry by size; 0 where there is none."""
    return value.abs().max() if value.numel() else value.new_zeros(())
