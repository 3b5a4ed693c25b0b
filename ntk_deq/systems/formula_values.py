"""Formulas in floating point: of parameters and numbers, free of samples, and row programs.

Each part of a formula free of samples is evaluated once; of a row program, what does not depend on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.evaluation.floats import OPERATORS, TensorNames, tensor_value
from ntk_deq.evaluation.functions import scalar
from ntk_deq.evaluation.functions.twins import FUNCTIONS
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr, Kind, names_in


class FixedValues:
    """Values of formulas that know no samples, for one set of parameters.

    Args:
        variables: Parameters and hyperparameters; a vector may come with one axis or as a column.
        sizes: Returns the values of the size letters, where a formula asks for one.
        definitions: Formulas that a name may stand for.
        like: A tensor with the dtype and device of the results.

    Attributes:
        like: As given.

    Example:
        >>> import torch
        >>> from ntk_deq.language.parser import parse
        >>> one = torch.ones(1, 1)
        >>> FixedValues({"A": one}, dict, {"B": parse("2*A")}, one[0, 0]).value(parse("B + A"))
        tensor([[3.]])
    """

    def __init__(
        self,
        variables: Mapping[str, Tensor],
        sizes: Callable[[], Mapping[str, float]],
        definitions: Mapping[str, Expr],
        like: Tensor,
    ) -> None:
        self.like, self._variables, self._definitions, self._find_sizes = like, variables, definitions, sizes
        self._kept: dict[str | int, Tensor] = {}

    @cached_property
    def sizes(self) -> Mapping[str, float]:
        """Values of the size letters."""
        return self._find_sizes()

    @cached_property
    def _names(self) -> TensorNames:
        columns = {name: self._variable(name) for name in self._variables}
        names = TensorNames(columns, self.sizes, {}, None, self.like)
        names.cache.update(self._kept)
        self._kept = names.cache
        return names

    def _variable(self, name: str) -> Tensor:
        value = self._variables[name]
        return value.unsqueeze(-1) if value.ndim == 1 else value

    def value(self, expr: Expr) -> Tensor:
        """Return the value of a formula, a matrix or a number; parts are kept for the next that needs them.

        Args:
            expr: The formula.
        """
        found = self._kept.get(id(expr))
        if found is None:
            found = self._kept[id(expr)] = self._worked_out(expr)
        return found

    def _worked_out(self, expr: Expr) -> Tensor:
        name = expr.name
        if expr.kind is Kind.NAME:
            if name in self._variables:
                return self._variable(name)
            if name in self._definitions:
                if name not in self._kept:
                    for other in self._behind(name):  # in order, so that they do not call each other
                        self._kept[other] = self.value(self._definitions[other])
                return self._kept[name]
        parts = [self.value(arg) for arg in expr.args]
        if expr.kind in OPERATORS:
            return OPERATORS[expr.kind](*parts)
        if expr.kind is Kind.CALL and name in FUNCTIONS and entrywise_of(name) is None:
            return FUNCTIONS[name](self.like, *parts)
        return tensor_value(expr, self._names)

    def _behind(self, name: str) -> list[str]:
        """Return a definition with those that it is made of, each after what it builds on, but for known ones."""
        kept, wanted = self._kept, {name}
        for other in self.later_first():
            if other in wanted and other not in kept:
                wanted |= names_in(self._definitions[other])
        return [other for other in self._definitions if other in wanted and other not in kept]

    def number(self, expr: Expr) -> Tensor:
        """Return the value of a formula of a number, 0-d.

        Args:
            expr: The formula.
        """
        return scalar(self.value(expr))

    def definition(self, name: str) -> Expr | None:
        """Return the formula that a name stands for, None where it stands for a variable or a size."""
        return self._definitions.get(name)

    def later_first(self) -> list[str]:
        """Return the names of definitions, each before those that it is made of."""
        return list(reversed(list(self._definitions)))


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
        state: The state among them.
        trained: Those on which a parameter has an influence, their own or one further down.
        between: Those and the steps that depend on the state.
        fused: Products that only a sum needs, added to it as they are formed.
        links: The steps that depend on the state, where each reads no other one than the one before; None: they do not.
    """

    def __init__(self, root: Row, parametric: Callable[[Expr], bool]) -> None:
        self.root, self.steps, self.parametric = root, root.steps(), parametric
        self.moving = [step for step in self.steps if step.moving]
        self.state = next((step for step in self.moving if step.op is Op.STATE), None)
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
        self.links = self._links()

    def _user(self, step: Row) -> Row:
        return next(user for user in self.moving if step in user.args)

    def _links(self) -> list[Row] | None:
        before: Row | None = None
        links = []
        for step in self.moving:
            if step in self.fused:
                continue
            needed = {arg.args[0] if arg in self.fused else arg for arg in step.args if arg.moving}
            if needed != ({before} if before is not None else set()):
                return None
            links.append(step)
            before = step
        return links[1:]

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
        found.__dict__.pop("compiled", None)
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

    @cached_property
    def compiled(self) -> Callable[[Tensor], Tensor]:
        """Return the same function of the state, made for many calls: where steps follow one another, nothing else."""
        links = self.program.links
        if links is None:
            return self.value
        parts = [self._link(step, before) for before, step in zip([None, *links], links, strict=False)]
        if len(parts) == 1:
            return parts[0]
        if len(parts) == 2:
            inner, outer = parts
            return lambda Z: outer(inner(Z))

        def value(Z: Tensor) -> Tensor:
            for part in parts:
                Z = part(Z)
            return Z

        return value

    def _link(self, step: Row, before: Row | None) -> Callable[[Tensor], Tensor]:
        """Return a step as a function of the one before it, which is the only one that depends on the state."""
        if step.op is Op.ENTRYWISE:
            return self.function(step)
        if step.op is Op.PRODUCT:
            matrix = self._matrices[step]
            return lambda rows: rows @ matrix
        if step.op is Op.SUM and len(step.args) == 2:
            moving, still = sorted(zip(step.args, step.signs, strict=True), key=lambda term: not term[0].moving)
            if moving[0] in self.program.fused and not still[0].moving:
                matrix, sign = self._matrices[moving[0]], moving[1]
                rest = self.still[still[0]] if still[1] > 0 else -self.still[still[0]]
                return lambda rows: torch.addmm(rest, rows, matrix, alpha=sign)
        last = before or self.program.state
        assert last is not None  # something depends on the state
        return lambda rows: self.evaluated(step, {**self.still, last: rows})

    def values(self, Z: Float[Tensor, "N m"]) -> dict[Row, Tensor]:
        """Return the values of all steps at a state, but for products that are only added to something.

        Args:
            Z: The state.
        """
        values = dict(self.still)
        for step in self.program.moving:
            if step.op is Op.STATE:
                values[step] = Z
            elif step not in self.program.fused:
                values[step] = self.evaluated(step, values)
        return values

    def before_root(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return what the last step, a function, is taken of; it lies in `out` where that saves a copy.

        Args:
            Z: The state.
            out: A buffer.
        """
        values, last = dict(self.still), self.program.root.args[0]
        for step in self.program.moving[:-1]:
            if step.op is Op.STATE:
                values[step] = Z
            elif step is last and step.op is Op.SUM:
                values[step] = self._sum(step, values, out)
            elif step not in self.program.fused:
                values[step] = self.evaluated(step, values)
        return values[last]

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
            case Op.SOFTMAX:
                return torch.softmax(values[step.args[0]], dim=-1)
            case _:
                return self.function(step)(values[step.args[0]])

    def _sum(self, step: Row, values: Mapping[Row, Tensor], out: Tensor | None = None) -> Tensor:
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
                total = torch.addmm(total, before, matrix, alpha=sign, out=out if len(later) == 1 else None)
        assert total is not None  # a sum has terms
        return total

    def function(self, step: Row) -> Callable[[Tensor], Tensor]:
        """Return the function of an entrywise step.

        Args:
            step: The step.
        """
        return partial(FUNCTIONS[step.name], self.fixed.like)

    def matrix(self, step: Row) -> Tensor:
        """Return the matrix that a product multiplies rows with.

        Args:
            step: The product.
        """
        return self._matrices[step]
