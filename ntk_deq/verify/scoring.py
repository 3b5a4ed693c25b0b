"""Score instances against a claim in plain floating point: the evaluator as the search sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.batches import MAX_ENTRIES, Remembered, well_posed
from ntk_deq.evaluation.environment import Notes, model_formulas
from ntk_deq.evaluation.floats import TensorNames, equilibrium, tensor_value
from ntk_deq.evaluation.functions import scalar
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.margins import BROKEN_BY_EQUALITY, Margins, Part, parts
from ntk_deq.falsify.search.archive import Scores
from ntk_deq.language.declaration import Setting
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import ONE, Sort
from ntk_deq.verify.equations import Place, Plan, domain_margin, solved_names
from ntk_deq.verify.equations.plan import Equations
from ntk_deq.verify.formulas import Uses, default_budget

_SMALL = 64  # entries of all variables of an instance, up to which its size does not matter
_TOGETHER = 128  # small instances that cost as much as one call

_ALONE = 0.08  # of a call: an instance with a derivative or a system of equations


NOTHING: Mapping[str, Tensor] = MappingProxyType({})
"""Where no variable moves."""

_SOLVED = 1e-9  # relative size of what is left of an equation that is solved

ORDERS = ("<", "<=", ">", ">=")
"""Comparisons in which one side is to be the smaller one."""


@dataclass(frozen=True)
class _Effort:
    """What a hypothesis takes: its share of the operations of a call, and whether it has a derivative."""

    share: float
    derives: bool


class ClaimScorer:
    """Scores instances of one setting against one claim (`ntk_deq.falsify.search.archive.Scorer`).

    The equilibrium's existence counts as a hypothesis: where it is not seen to exist nothing can be certain.

    Args:
        claim: The claim.
        setting: One of its settings.
        device: Where to compute.
        dtype: In which precision.
        deadline: When to give up, on the clock of `time.thread_time`, or None.
        solving: Whether variables that equations among the hypotheses give are computed, and do not move; if not,
            equations are hypotheses like others.

    Attributes:
        joint: Whether equations are solved jointly: such a system may have other solutions than the one found.
        operations: How many operations the formulas are made of: how long a call takes, about.

    Example:
        >>> from ntk_deq.claims.load import load_suite
        >>> claim = next(c for c in load_suite("checks/matrix_facts.yaml").claims if c.id == "F.norms")
        >>> ClaimScorer(claim, claim.settings[0]).goals
        ('conclusion, link 1', 'conclusion, link 2', 'conclusion')
    """

    def __init__(
        self,
        claim: Claim,
        setting: Setting,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
        deadline: float | None = None,
        solving: bool = True,
    ) -> None:
        self.claim, self.setting, self._solving = claim, setting, solving
        self._notes = Notes(deadline=deadline)
        self.like = torch.zeros((), device=device, dtype=dtype)
        self._types = {**setting.variable_types(), **{name: free.type for name, free in claim.given.items()}}
        self._hypotheses = [part for f in claim.assume.values() for part in parts(f.name, f.expr)]
        known = {name: formula for name, formula in claim.conclude.items() if name not in claim.sought}
        self._conclusions = [part for f in known.values() for part in parts(f.name, f.expr)]
        self._formulas = None if setting.model is None else model_formulas(setting.model)
        used = self._used([f.expr for f in (*claim.assume.values(), *known.values())])
        self.goals = tuple(_shown(part) for part in self._conclusions)
        self.strict = tuple(part.strict for part in self._conclusions)
        self._solvable = Equations(claim, setting)
        self._plans: dict[tuple[tuple[str, float], ...], Plan | None] = {}
        sizes = setting.sizes.items()
        low, high = self._plan({k: v.low for k, v in sizes}), self._plan({k: v.high for k, v in sizes})
        computed, solved = frozenset[str](), frozenset[Place]()
        if low is not None and high is not None:  # what the equations give at all sizes does not move
            computed = (low.variables - low.moved) & (high.variables - high.moved)
            solved = low.equations & high.equations
        self.uses = frozenset(used.names & self._types.keys()) - computed
        self.differentiable = not used.derivatives
        self._needs_equilibrium = used.equilibrium
        self.hypotheses = len(self._hypotheses) + used.equilibrium
        unsolved = [_is_equation(part) and self._place(k) not in solved for k, part in enumerate(self._hypotheses)]
        self._equations = (*unsolved, *(False,) * used.equilibrium)
        compared = [part.expr for part in self._hypotheses]
        if used.equilibrium and self._formulas is not None:
            compared.append(self._formulas.contraction or self._formulas.map)
        each = [self._used([expr]) for expr in compared]
        self.needs = tuple(self._needed(u.names, computed) for u in each)
        self.joint = low is not None and bool(low.joint)
        self.operations = used.operations
        self._efforts = [_Effort(min(1.0, u.operations / max(1, used.operations)), u.derivatives) for u in each]
        self._solve = Remembered(frozenset() if self._formulas is None else self._formulas.read)
        self._base: Instance | None = None  # the last one, and its values as they stand in formulas
        self._resting: dict[str, Tensor] = {}

    @property
    def budget(self) -> float:
        """What a search of the setting may cost by default; the depths of a claim with families share it."""
        whole = default_budget(self.operations, differentiable=self.differentiable, universal=self.setting.universal)
        return whole / self.claim.depths_alike

    def _used(self, formulas: Sequence[Expr]) -> Uses:
        return Uses(formulas, self.claim, self._formulas)

    def __call__(self, base: Instance, moving: Mapping[str, Tensor]) -> Scores:
        """Score an instance with some variables replaced, each by many values along a new first dimension.

        Args:
            base: Gives the sizes, and the values of variables that stay.
            moving: New values by variable: many of the old one's shape, as many of each.

        Returns:
            One row for each value; one row where nothing moves.

        Raises:
            DeadlineError: The deadline has passed.
        """
        self.check_time()
        count = _count(moving)
        try:
            plan = self._plan(base.sizes)
            varied = {*moving, *(plan.variables if plan is not None else ())}
            if self._needs_equilibrium and self.state_entries(base) > MAX_ENTRIES and self.moves_state(varied):
                rows = [self._scores(base, {k: v[i] for k, v in moving.items()}, ()) for i in range(count)]
                return _stacked(rows)
            return self._scores(base, moving, (count,) if moving else ())
        except (NtkDeqError, torch.linalg.LinAlgError):
            if count == 1:
                return self._undefined()
        return _stacked([self(base, part) for part in _halves(moving)])

    def margins(self, base: Instance, moving: Mapping[str, Tensor], columns: Sequence[int] | None = None) -> Tensor:
        """Return the margins of the hypotheses alone, or of some, rows x hypotheses; -inf where one has no value.

        Raises:
            DeadlineError: The deadline has passed.
        """
        self.check_time()
        columns = range(self.hypotheses) if columns is None else columns
        count = _count(moving)
        alone = self._needs_equilibrium and self.state_entries(base) > MAX_ENTRIES
        if not alone or count == 1:
            try:
                names = self.names(base, moving)
                with torch.no_grad():
                    margins = [margin.expand(count) for margin in self._hypothesis_margins(names, columns)]
                table = torch.stack(margins, dim=1) if margins else self.like.new_zeros((count, 0))
                return table.nan_to_num(nan=-torch.inf).cpu().double()
            except (NtkDeqError, torch.linalg.LinAlgError):
                if count == 1:
                    return torch.full((1, len(columns)), -torch.inf, dtype=torch.float64)
        return torch.cat([self.margins(base, part, columns) for part in _halves(moving)])

    def cost(self, base: Instance, columns: Sequence[int] | None = None) -> tuple[float, float]:
        """Return what a call costs on its own, and for each instance in it: many small ones cost little more.

        With `columns`: the same of `margins`, which evaluates a part of the formulas.
        """
        chosen = [self._efforts[k] for k in columns or ()]
        plan = self._plan(base.sizes)
        joint = plan is not None and bool(plan.joint)  # a system is solved, whatever is asked of it
        share = 1.0 if columns is None or joint else min(1.0, sum(effort.share for effort in chosen))
        entries = sum(value.numel() for name, value in base.values.items() if name in self.uses)
        if self._needs_equilibrium and self.state_entries(base) > MAX_ENTRIES:
            return 0.0, share
        each = max(1.0, (entries + self.state_entries(base)) / _SMALL) / _TOGETHER
        derives = not self.differentiable if columns is None else any(effort.derives for effort in chosen)
        # A derivative, and a system of equations, is computed for each instance by itself, about.
        return share, share * max(each, _ALONE if derives or joint else 0.0)

    def values(self, base: Instance, moving: Mapping[str, Tensor], expr: Expr) -> Tensor:
        """Return the values of a scalar formula where some variables have many values, as in a call.

        Raises:
            NtkDeqError: It has none.
        """
        count = _count(moving)
        with torch.no_grad():
            names = self.names(base, moving)
            return scalar(tensor_value(expr, names)).expand(count)

    def names(self, base: Instance, moving: Mapping[str, Tensor] = NOTHING) -> TensorNames:
        """Return what names mean on one instance, or on many of the same sizes, as in a call."""
        return self._names(base, moving, (_count(moving),) if moving else ())

    def check_time(self) -> None:
        """Check that the deadline has not passed.

        Raises:
            DeadlineError: It has.
        """
        self._notes.check_time()

    def gaps(self, base: Instance, moving: Mapping[str, Tensor]) -> Tensor:
        """Return log(small/large) for each hypothesis that compares two numbers, small being what must be the smaller.

        A relative margin tells hardly whether two sides differ by 1e4 or by 1e8; this does. It is -inf where the small
        side is not positive, and inf where the large one alone is not.

        Args:
            base: As in a call.
            moving: Likewise.

        Returns:
            count x hypotheses that compare two numbers.
        """
        count = _count(moving)
        columns = []
        with torch.no_grad():
            names = self.names(base, moving)
            for part in self._hypotheses:
                expr = part.expr
                ordered = expr.kind is Kind.COMPARE and len(expr.args) == 2 and expr.operators[0] in ORDERS
                if ordered and all(map(is_number, expr.args)):
                    left, right = (scalar(tensor_value(side, names)).expand(count) for side in expr.args)
                    small, large = (left, right) if expr.operators[0] in ("<", "<=") else (right, left)
                    gap = torch.where(large > 0, small.log() - large.log(), torch.inf)
                    columns.append(torch.where(small > 0, gap, -torch.inf))
        return torch.stack(columns, dim=1) if columns else self.like.new_zeros((count, 0))

    def moves_state(self, moving: Collection[str]) -> bool:
        """Whether the equilibrium, or what the model defines, depends on one of some variables.

        Args:
            moving: Their names.
        """
        return self._formulas is not None and not self._formulas.read.isdisjoint(moving)

    def state_entries(self, base: Instance) -> int:
        """Return how many entries the state has: up to `MAX_ENTRIES`, many equilibria are solved for at once."""
        rows, cols = self._state_shape(base)
        return rows * cols

    def _state_shape(self, base: Instance) -> tuple[int, int]:
        return (0, 0) if self.setting.model is None else self.setting.model.state_at(base.sizes)

    def _scores(self, base: Instance, moving: Mapping[str, Tensor], batch: tuple[int, ...]) -> Scores:
        names = self._names(base, moving, batch)
        margins = self._margins(names)
        hypotheses = list(self._hypothesis_margins(names, range(self.hypotheses), margins))
        goals = [margins.part(part) for part in self._conclusions]
        count = batch or (1,)
        defined = torch.ones(count, dtype=torch.bool, device=self.like.device)
        for mark in names.trouble or ():
            defined = defined & ~mark
        columns = [column.expand(count) for column in (*hypotheses, *goals)]
        for column in columns:
            defined = defined & ~torch.isnan(column)
        known = [torch.nan_to_num(column, nan=-1.0) for column in columns]
        table = torch.stack(known, dim=1) if known else self.like.new_zeros((*count, 0))
        return Scores(table[:, : len(hypotheses)], table[:, len(hypotheses) :], defined, self._equations)

    def _margins(self, names: TensorNames) -> Margins:
        return Margins(names, 0 if self.claim.run is None else self.claim.run.steps)

    def _hypothesis_margins(
        self, names: TensorNames, columns: Sequence[int], margins: Margins | None = None
    ) -> Iterator[Tensor]:
        margins = self._margins(names) if margins is None else margins
        plan = self._plan(names.sizes)
        for place in columns:
            stated = place < len(self._hypotheses)
            yield self._hypothesis(place, margins, plan) if stated else self._existence(names)

    def _existence(self, names: TensorNames) -> Tensor:
        """The relative margin of the implicit hypothesis that the equilibrium exists."""
        margin = well_posed(names)
        return torch.where(margin.detach() == 0, margin.new_full((), BROKEN_BY_EQUALITY), margin)

    def _names(self, base: Instance, moving: Mapping[str, Tensor], batch: tuple[int, ...]) -> TensorNames:
        if self._base is not base:
            self._base, self._resting = base, {name: self._shaped(name, value) for name, value in base.values.items()}
        variables = {**self._resting, **{name: self._shaped(name, value) for name, value in moving.items()}}
        direct = self.state_entries(base) <= MAX_ENTRIES
        names = TensorNames(
            variables,
            base.sizes,
            self.claim.let,
            self._formulas,
            self.like,
            state_shape=self._state_shape(base),
            solve=self._solve if direct else _solve_alone,
            batch=batch,
            trouble=[],
            trains=self.claim.trains,
            recursions=self.claim.recursions,
        )
        plan = self._plan(base.sizes)
        return names if plan is None else solved_names(names, plan)

    def _shaped(self, name: str, value: Tensor) -> Tensor:
        value, type_ = value.to(self.like), self._types[name]
        return value.unsqueeze(-1) if type_.sort is Sort.MATRIX and type_.cols == ONE else value

    def _plan(self, sizes: Mapping[str, float]) -> Plan | None:
        """Return how the equations among the hypotheses are solved; None where there are none."""
        if not self._solving or not self._solvable.found:
            return None
        key = tuple(sizes.items())
        if key not in self._plans:
            whole = {letter: int(size) for letter, size in sizes.items()}
            self._plans[key] = next(self._solvable.plans(whole), None)
        return self._plans[key]

    def _needed(self, names: Set[str], computed: frozenset[str]) -> frozenset[str]:
        """Return the variables that a formula of some names depends on; for a computed one those of its equations."""
        if names & computed:
            names = frozenset(names).union(*(equation.names for equation in self._solvable.found))
        return frozenset(names & self._types.keys()) - computed

    def _place(self, number: int) -> Place:
        """Return which comparison of which hypothesis one of the parts is."""
        name = self._hypotheses[number].name
        return name, number - next(k for k, part in enumerate(self._hypotheses) if part.name == name)

    def _hypothesis(self, number: int, margins: Margins, plan: Plan | None) -> Tensor:
        """Return the margin of a comparison; of an equation that is solved, by how much its variables are inside.

        The margin of such an equation is zero, or noise, where it is solved, and its sign says nothing.
        """
        margin = margins.part(self._hypotheses[number])
        if plan is None or self._place(number) not in plan.equations:
            return margin
        inside = [
            domain_margin(variable.domain, margins.names.variables[variable.name])
            for variable in plan.given_by(self._place(number))
        ]
        return torch.where(margin.detach() >= -_SOLVED, torch.stack(torch.broadcast_tensors(*inside)).amin(0), margin)

    def _undefined(self) -> Scores:
        no = self.like.new_full((1, self.hypotheses), -1.0)
        defined = torch.zeros(1, dtype=torch.bool, device=self.like.device)
        return Scores(no, self.like.new_full((1, len(self.goals)), -1.0), defined, self._equations)


def _count(moving: Mapping[str, Tensor]) -> int:
    """Return how many values the variables that move have, each as many: one instance where none does."""
    return len(next(iter(moving.values()))) if moving else 1


def _halves(moving: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    half = _count(moving) // 2
    return [{k: v[:half] for k, v in moving.items()}, {k: v[half:] for k, v in moving.items()}]


def _is_equation(part: Part) -> bool:
    return part.link is not None and part.expr.operators[part.link] == "=="


def is_number(side: Expr) -> bool:
    """Whether a side of a comparison is a number."""
    return side.type is not None and (side.type.sort is Sort.SCALAR or side.type.sort.is_index)


def _solve_alone(names: TensorNames, start: Tensor | None) -> Tensor:
    """Return the equilibrium of one instance with a large state; marks one where none is seen to exist."""
    lost = ~(well_posed(names).detach() > 0)
    if names.trouble is not None:
        names.trouble.append(lost)
    if bool(lost):
        return names.like.new_zeros(names.state_shape)
    return equilibrium(replace(names, solve=None, trouble=None), start)


def _stacked(rows: list[Scores]) -> Scores:
    return Scores(
        torch.cat([row.hypotheses for row in rows]),
        torch.cat([row.goals for row in rows]),
        torch.cat([row.defined for row in rows]),
        rows[0].equations,
    )


def _shown(part: Part) -> str:
    alone = part.link is None or len(part.expr.operators) == 1
    return part.name if alone or part.link is None else f"{part.name}, link {part.link + 1}"
