"""The derivative of a row program: cotangents in reverse, without a graph of automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr
from ntk_deq.systems.formula_values import PreparedRows
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
        self.state = program.state
        if self.state is not None:
            self._known[self.state] = Z
        if fixed_point:
            self._known[program.root] = Z
        self._slopes: dict[Row, Tensor] = {}
        self._norms: dict[Row, Tensor] = {}
        self._scratch: dict[int, Tensor] = {}

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
        found.__dict__.pop("_chain", None)
        found._scratch = {}
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
        waiting, fused = [step], self._rows.program.fused
        while waiting:  # no recursion: programs may be thousands of steps deep
            here = waiting[-1]
            needed = [arg.args[0] if here.op is Op.SUM and arg in fused else arg for arg in here.args]
            before = [] if here in self._known else [arg for arg in needed if arg not in self._known]
            if before:
                waiting += before
                continue
            if here not in self._known:
                self._known[here] = self._rows.evaluated(here, self._known)
            waiting.pop()
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
                self._slopes[step] = _derivatives(self._rows.function(step), at, 1)
        return self._slopes[step]

    def curvature(self, step: Row) -> Tensor:
        """Return the largest second derivative of an entrywise step, by size, where it has one."""
        facts = entrywise_of(step.name)
        at = self.at(step.args[0])
        if facts is None or facts.sides is not None:
            return at.new_zeros(())
        return largest(_derivatives(self._rows.function(step), at, 2))

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
            case Op.SOFTMAX:
                shares = self.at(step)
                weighted = cotangent * shares
                return [weighted - shares * weighted.sum(dim=-1, keepdim=True)]
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
        if self._chain is not None and onto is not None:
            return self._along(self._chain, cotangent, onto, out)
        found = {program.root: cotangent}
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

    def pulling(self, onto: Float[Tensor, "N m"]) -> Callable[[Tensor], Tensor]:
        """Return what `pulled` does to cotangents, for many calls.

        Args:
            onto: What each result is added to.
        """
        links = None if self.state is None else self._chain
        if links is None or len(links) > 2:
            return lambda cotangent: cast(Tensor, self.pulled(cotangent, onto))
        last = links[-1][1]
        if len(links) == 1:
            return lambda cotangent: torch.addmm(onto, cotangent, last)
        op, factor = links[0]
        if op is Op.PRODUCT:
            return lambda cotangent: torch.addmm(onto, cotangent @ factor, last)
        return lambda cotangent: torch.addmm(onto, cotangent * factor, last)

    def _along(self, links: list[tuple[Op, Tensor]], cotangent: Tensor, onto: Tensor, out: Tensor | None) -> Tensor:
        for place, (op, factor) in enumerate(links[:-1]):
            if op is Op.PRODUCT:
                cotangent = cotangent @ factor
            elif out is None:
                cotangent = cotangent * factor
            else:  # called again and again, without derivatives
                known = self._scratch.get(place)
                cotangent = self._scratch[place] = torch.mul(cotangent, factor, out=known)
        return torch.addmm(onto, cotangent, links[-1][1], out=out)

    @cached_property
    def _chain(self) -> list[tuple[Op, Tensor]] | None:
        """What a cotangent is multiplied with on its way to the state, one after the other; None: it has several ways.

        The last is a product with a matrix.
        """
        links, step = list[tuple[Op, Tensor]](), self.root
        while step is not self.state:
            moving = [arg for arg in step.args if arg.moving]
            if len(moving) != 1:
                return None
            match step.op:
                case Op.PRODUCT:
                    links.append((Op.PRODUCT, self._rows.matrix(step).mT))
                case Op.SCALE:
                    links.append((Op.SCALE, self.number(step)))
                case Op.HADAMARD:
                    other = step.args[1] if step.args[0] is moving[0] else step.args[0]
                    links.append((Op.SCALE, self.at(other)))
                case Op.ENTRYWISE:
                    links.append((Op.SCALE, self.slope(step)))
                case Op.SOFTMAX:  # whose slopes are no factors of the entries
                    return None
                case _ if step.signs[step.args.index(moving[0])] < 0:
                    links.append((Op.SCALE, -self._rows.fixed.like.new_ones(())))
            step = moving[0]
        return links if links and links[-1][0] is Op.PRODUCT else None

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
        return [Occurrence(step.fixed[0], self.at(arg), cotangent, number=True)]


def largest(value: Tensor) -> Tensor:
    """Return the largest entry by size; 0 where there is none."""
    return value.abs().max() if value.numel() else value.new_zeros(())


def _derivatives(function: Callable[[Tensor], Tensor], at: Tensor, order: int) -> Tensor:
    """Return the first or second derivative of a function of each entry.

    By the plain engine: `torch.func` takes seconds on its first call, and no transform is above.
    """
    with torch.enable_grad():
        point = at.detach().requires_grad_()
        found = function(point)
        for left in reversed(range(order)):
            if not found.requires_grad:
                return torch.zeros_like(at)
            (found,) = torch.autograd.grad(found.sum(), point, create_graph=left > 0)
    return found
