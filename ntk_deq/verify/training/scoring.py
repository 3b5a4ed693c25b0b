"""Score instances against a claim on a training run: a short run in floats for each that meets the hypotheses.

Gradient descent on many small instances of the same sizes at once, in floats: runs that are scored, never judged.

The loss, its equilibrium and its gradient come from the model's formulas, as in every score: a step for a hundred
instances takes hardly longer than for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol, Unpack

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.batches import MAX_ENTRIES
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions import frobenius, scalar
from ntk_deq.evaluation.instance import Instance, with_values
from ntk_deq.evaluation.margins import Margins, parts
from ntk_deq.falsify.search.archive import Scores
from ntk_deq.language.declaration import Role, Setting
from ntk_deq.language.run import LOSS, PATH_LENGTH, Run
from ntk_deq.language.tree import Formula, Kind
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.verify.formulas import Judging
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.training import model_of
from ntk_deq.verify.training.between import at_the_start
from ntk_deq.verify.training.trajectory import again_if_interrupted


def descend(
    names: TensorNames,
    parameters: Collection[str],
    step: Tensor,
    *,
    steps: int,
    until: float,
    keep: Collection[int],
    check_time: Callable[[], None],
) -> TensorNames:
    """Return what names mean on every instance of a batch and, with an index, at some steps of descent from it.

    A run ends where its loss is down to the floor, or is not finite, or the equilibrium is not seen to exist; `known`
    says at each step which runs have got there.

    Args:
        names: What names mean on the instances at the start, with a batch dimension.
        parameters: The variables that are trained.
        step: The step size of each instance.
        steps: How many steps are taken.
        until: The share of the first loss at which a run ends.
        keep: The steps that are wanted.
        check_time: Called at every step.
    """
    assert names.formulas is not None
    loss_of = names.formulas.definitions[LOSS]
    count = names.batch[0]
    values = {name: _for_each(names.variables[name], count).detach() for name in parameters}
    path, floor = names.like.new_zeros(count), names.like.new_zeros(count)
    alive = torch.ones(count, dtype=torch.bool, device=names.like.device)
    guess: Tensor | None = None
    moments: dict[float, TensorNames] = {}
    start = replace(names, moments=moments)
    for k in range(steps + 1):
        check_time()
        leaves = {name: value.requires_grad_() for name, value in values.items()}
        here = replace(names, variables={**names.variables, **leaves}, guess=guess, trouble=[])
        with torch.enable_grad():
            loss = scalar(tensor_value(loss_of, here)).expand(count)
            found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        for mark in here.trouble or ():
            alive = alive & ~mark
        alive = alive & loss.isfinite()
        values = {name: value.detach() for name, value in leaves.items()}
        guess = here.cache[names.formulas.state].detach() if names.formulas.state in here.cache else None
        if k in keep:
            moment = replace(start, variables={**names.variables, **values}, guess=guess, known=alive)
            moment.cache[PATH_LENGTH] = path
            moments[float(k)] = moment
        if k == 0:
            floor = torch.where(loss.detach() >= 0, until * loss.detach(), -math.inf)
        alive = alive & (loss.detach() > floor)
        if not bool(alive.any()):
            break
        size = names.like.new_zeros(count)
        for (name, value), gradient in zip(values.items(), found, strict=True):
            if gradient is not None:
                shape = (count, *(1,) * (value.ndim - 1))
                move = torch.where(alive.reshape(shape), step.reshape(shape) * gradient, 0.0)
                values[name] = value - move
                size = size + frobenius(move) ** 2
        path = path + size.sqrt()
    return start


def _for_each(value: Tensor, count: int) -> Tensor:
    """Return a matrix, or a number, for each instance."""
    return value if value.ndim in (1, 3) else value.expand(count, *value.shape)


STEPS = 200
"""Steps of descent or of the integrator in a run that is scored, at most."""

SNAPSHOTS = 16
"""Steps or times at which the conclusions are compared."""

PAIRS = 48
"""Steps followed by the next one at which they are compared, where they speak of more than one step at a time."""

TRAINED_BUDGET = 300.0
"""What the search of a setting may cost by default, in training runs."""

UNTRIED = 1.0
"""The margin of an instance that fails a hypothesis: none is worse to the search, which is after small ones."""


_BARE = (Kind.NAME, Kind.NUMBER)
_BATCH, _BATCHED = 4.0, 0.03  # single runs that a call takes, and each instance in it, where all descend at once
_ENTRIES = 16  # of the state, that double the share of an instance
_UNTRAINED = 0.05  # of a short run: the hypotheses at its start


class Scored(Protocol):
    """What the twin of a kind of training run says of how its runs are scored.

    Attributes:
        together: Whether many small instances descend together, by `descend`.
    """

    together: ClassVar[bool]

    def number(self, run: Run) -> Formula | None:
        """Return the formula of what a run is made of besides its model: its step size, or its horizon, if any."""

    def short(
        self, run: Run, model: EquilibriumModel, X: Tensor, y: Tensor, number: float | None, keep: Sequence[int]
    ) -> TrainingRun:
        """Train for a few steps.

        Args:
            run: The run of a claim.
            model: The start.
            X: Inputs.
            y: Targets.
            number: What `number` says, on the instance.
            keep: Steps that are kept besides.
        """


class TrainingScorer:
    """Scores instances of one setting against one claim with a training run (`ntk_deq.falsify.search.archive.Scorer`).

    Hypotheses at the start are scored for many instances at once. Those that meet them are trained, one after another.

    Args:
        twin: What is done with runs of its kind.
        claim: A claim with a training run.
        setting: One of its settings.
        how: What `ClaimScorer` takes.
    """

    differentiable = False
    joint = False
    budget = TRAINED_BUDGET

    def __init__(self, twin: Scored, claim: Claim, setting: Setting, **how: Unpack[Judging]) -> None:
        assert claim.run is not None
        self.claim, self.run, self._twin = claim, claim.run, twin
        self._whole = ClaimScorer(claim, setting, **how)
        self._start = ClaimScorer(at_the_start(claim), setting, **how)
        self._parts = [part for f in claim.conclude.values() for part in parts(f.name, f.expr)]
        self.goals, self.strict = self._whole.goals, self._whole.strict
        self.hypotheses, self.needs = self._start.hypotheses, self._start.needs
        indices = (node.args[0] for part in self._parts for node in part.expr.walk() if node.kind is Kind.INDEX)
        self._keep = _pairs(min(self.run.steps, STEPS)) if any(i.kind not in _BARE for i in indices) else ()
        self._runs: dict[bytes, TrainingRun] = {}
        # The run depends on every variable of the model, whatever the formulas mention.
        self.uses = frozenset({*setting.variable_types(), *claim.given})

    def __call__(self, base: Instance, moving: Mapping[str, Tensor]) -> Scores:
        """Score an instance with some variables replaced, each by many values along a new first dimension.

        Raises:
            DeadlineError: The deadline has passed.
        """
        with torch.no_grad():
            scores = self._start(base, moving)
        goals = scores.hypotheses.new_full((len(scores.hypotheses), len(self.goals)), UNTRIED)
        defined = scores.defined.clone()
        rows = (scores.feasible > 0).nonzero().flatten()
        if self._batches(base) and moving and len(rows) > 1:
            goals[rows], defined[rows] = self._together(base, {name: values[rows] for name, values in moving.items()})
            return Scores(scores.hypotheses, goals, defined)
        for row in rows.tolist():
            self._whole.check_time()
            instance = with_values(base, **{name: values[row] for name, values in moving.items()})
            try:
                with torch.no_grad():
                    goals[row] = torch.nan_to_num(self._margins(instance), nan=UNTRIED)
            except (NtkDeqError, torch.linalg.LinAlgError, OverflowError):
                defined[row] = False
        return Scores(scores.hypotheses, goals, defined)

    def margins(self, base: Instance, moving: Mapping[str, Tensor], columns: Sequence[int] | None = None) -> Tensor:
        """Return margins of the hypotheses at the start, rows x hypotheses; -inf where one has no value."""
        return self._start.margins(base, moving, columns)

    def cost(self, base: Instance, columns: Sequence[int] | None = None) -> tuple[float, float]:
        """Return what a call costs, and each instance in it, in runs of one instance; small ones descend together.

        With `columns`: what the margins of these hypotheses cost, for which nothing is trained.
        """
        if columns is None:
            if not self._batches(base):
                return 0.0, 1.0
            return _BATCH, _BATCHED * (1 + self._whole.state_entries(base) / _ENTRIES)
        call, each = self._start.cost(base, columns)
        return _UNTRAINED * call, _UNTRAINED * each

    def _batches(self, base: Instance) -> bool:
        """Whether instances of such sizes descend together."""
        return self._twin.together and self._whole.state_entries(base) <= MAX_ENTRIES

    def _together(self, base: Instance, moving: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the margins of the conclusions on many instances, and where they have a value."""
        names, run = self._whole.names(base, moving), self.run
        count, steps = names.batch[0], min(run.steps, STEPS)
        model = self._whole.setting.model
        assert model is not None
        assert run.step is not None
        try:
            with torch.no_grad():
                step = scalar(tensor_value(run.step.expr, names)).expand(count)
                usable = step.isfinite() & (step > 0)
                names = descend(
                    names,
                    model.names(Role.PARAMETER),
                    step,
                    steps=steps,
                    until=float(run.until),
                    keep=_pairs(steps),
                    check_time=self._whole.check_time,
                )
                margins = Margins(names, run.steps)
                table = torch.stack([margins.part(part).expand(count) for part in self._parts], dim=1)
        except (NtkDeqError, torch.linalg.LinAlgError, OverflowError):
            if count == 1:
                return self._whole.like.new_full((1, len(self.goals)), UNTRIED), self._whole.like.new_zeros(1).bool()
            half = count // 2
            parts = [{k: v[:half] for k, v in moving.items()}, {k: v[half:] for k, v in moving.items()}]
            tables, marks = zip(*(self._together(base, part) for part in parts), strict=True)
            return torch.cat(tables), torch.cat(marks)
        return torch.where(usable[:, None], table.nan_to_num(nan=UNTRIED), UNTRIED), usable

    def _margins(self, instance: Instance) -> Tensor:
        names = self._whole.names(instance)
        trained = self._trained(instance)
        again_if_interrupted(trained)
        margins = Margins(along(names, trained), self.run.steps)
        return torch.stack([margins.part(part).reshape(()) for part in self._parts])

    def _trained(self, instance: Instance) -> TrainingRun:
        model = self._whole.setting.model
        assert model is not None
        values = {name: value.to(self._whole.like) for name, value in instance.values.items()}
        formula = self._twin.number(self.run)
        number = None if formula is None else float(self._whole.values(instance, {}, formula.expr)[0])
        own = {variable.name for variable in model.variables}
        # A scalar that stands in formulas alone moves no run.
        key = repr(number).encode() + b"".join(values[name].cpu().numpy().tobytes() for name in sorted(own))
        if key not in self._runs:
            self._runs = {key: self._twin.short(self.run, *model_of(model, values), number, self._keep)}
        return self._runs[key]


def _pairs(steps: int) -> tuple[int, ...]:
    """Return steps from 0 to the end, evenly in their logarithm from either end, each followed by the next one."""
    if steps <= 2 * PAIRS:
        return tuple(range(steps + 1))
    spread = {round(steps ** (i / (PAIRS // 2 - 1))) - 1 for i in range(PAIRS // 2)}
    first = spread | {steps - 1 - k for k in spread}
    return tuple(sorted({k + more for k in first for more in (0, 1) if 0 <= k + more <= steps}))


def along(names: TensorNames, run: TrainingRun) -> TensorNames:
    """Return what names mean on an instance and, with an index, at the snapshots of a run from it."""
    moments: dict[float, TensorNames] = {}
    start = replace(names, moments=moments)
    for snapshot in run.snapshots:
        values = {name: value.reshape(names.variables[name].shape) for name, value in snapshot.parameters.items()}
        moment = start if snapshot.at == 0 else replace(start, variables={**names.variables, **values})
        moment.cache[PATH_LENGTH] = names.like.new_tensor(snapshot.path_length)
        moments[snapshot.at] = moment
    return start
