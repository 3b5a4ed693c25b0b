"""What the tests of the search share: a scorer made of plain functions, settings, and claims from text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import Position
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.search import Space
from ntk_deq.falsify.search.archive import Archive, Scores
from ntk_deq.falsify.search.objective import Meter, Objective
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.types import SCALAR, SizeRange, Type

REAL = Domain(DomainKind.REAL)
Values = Mapping[str, Tensor]


def interval(low: int, high: int, *, low_open: bool = False, high_open: bool = False) -> Domain:
    return Domain(DomainKind.INTERVAL, Fraction(low), Fraction(high), low_open, high_open)


def free(name: str, domain: Domain = REAL, type_: Type = SCALAR) -> Free:
    return Free(name, type_, domain)


def setting_of(*variables: Free, sizes: Mapping[str, SizeRange] | None = None) -> Setting:
    return Setting("s", None, dict(sizes or {}), {v.name: v for v in variables}, {}, None, Position("", 1, 1))


def instance_of(**values: Tensor | float) -> Instance:
    tensors = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in values.items()}
    return Instance("s", "given", {}, tensors, 0)


class PlainScorer:
    """Scores by functions of the values; counts what it is asked."""

    def __init__(
        self,
        *goals: Callable[[Values], Tensor],
        hypotheses: tuple[Callable[[Values], Tensor], ...] = (),
        strict: bool = False,
        uses: tuple[str, ...] = ("x", "y"),
    ) -> None:
        self._functions, self._conditions = goals, hypotheses
        self.goals = tuple(f"goal {k}" for k in range(len(goals)))
        self.strict = (strict,) * len(goals)
        self.hypotheses = len(hypotheses)
        self.needs = (frozenset(uses),) * len(hypotheses)
        self.uses = frozenset(uses)
        self.differentiable = True
        self.asked = 0
        self.seen: list[dict[str, Tensor]] = []

    def __call__(self, base: Instance, moving: Values) -> Scores:
        count = len(next(iter(moving.values()))) if moving else 1
        self.asked += count
        values = {**{name: value.expand(count, *value.shape) for name, value in base.values.items()}, **moving}
        self.seen.append({name: value.detach() for name, value in values.items()})
        goals = torch.stack([f(values) for f in self._functions], dim=1)
        return Scores(self._table(values, count), goals, torch.isfinite(goals.detach()).all(1))

    def margins(self, base: Instance, moving: Values, columns: Sequence[int] | None = None) -> Tensor:
        count = len(next(iter(moving.values()))) if moving else 1
        values = {**{name: value.expand(count, *value.shape) for name, value in base.values.items()}, **moving}
        table = self._table(values, count)
        return table if columns is None else table[:, list(columns)]

    def _table(self, values: Values, count: int) -> Tensor:
        conditions = [f(values) for f in self._conditions]
        return torch.stack(conditions, dim=1) if conditions else torch.zeros(count, 0, dtype=torch.float64)

    def cost(self, base: Instance, columns: Sequence[int] | None = None) -> tuple[float, float]:
        """Points are counted, however many come together."""
        return 0.0, 1.0


def objective_of(
    scorer: PlainScorer,
    base: Instance,
    variables: Mapping[str, Free],
    *,
    goal: int | None = 0,
    budget: int = 10_000,
    smooth: bool = True,
) -> Objective:
    space = Space(variables, base, smooth=smooth)
    return Objective(space, scorer, goal, Archive(scorer), Meter(budget), "test")


def claims_of(text: str, folder: Path) -> dict[str, Claim]:
    """The claims of a suite given as text."""
    file = folder / "suite.yaml"
    file.write_text(text)
    return by_id.__wrapped__(file)


@cache
def by_id(file: str | Path) -> dict[str, Claim]:
    """The well-formed claims of a file by their ids."""
    return {claim.id: claim for claim in load_suite(file).claims if isinstance(claim, Claim)}
