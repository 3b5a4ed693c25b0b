"""The loss of a model or module as a function of its parameters alone, evaluated in chunks of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ntk_deq.equilibrium.result import Equilibrium
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.systems.losses import output_loss
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.systems.solve import solve_equilibrium

Values = dict[str, Tensor]
"""Parameters by name."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of predictions and targets, one number."""

_MANY, _ROUND = 256, 20
# Of more samples than this, those that are solved are left out after every so many steps: the slowest need many times
# the steps of most. For fewer, the cost of a step hardly depends on how many there are.


@dataclass(frozen=True, eq=False)
class Objective:
    """What is evaluated: predictions from parameters, sample by sample, and one loss of all of them.

    Attributes:
        parameters: Those of the model.
        evaluate: Returns the loss at parameters, and what failed: the last solve with an unsolved sample, or None.
        where: The function that was called.
        last: Whether the states at which a solve ends count where it does not arrive.
        failed: Evaluations so far with an unsolved sample, a list that grows.
    """

    parameters: Values
    evaluate: Callable[[Values], tuple[float, Equilibrium | None]]
    where: str
    last: bool = False
    failed: list[Equilibrium] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        model: Any,
        X: Tensor | None,
        y: Tensor | None,
        *,
        loss: Loss | None,
        chunk: int | None,
        solver: Any,
        rtol: float,
        max_steps: int,
        where: str,
        unsolved: str = "gap",
    ) -> Objective:
        """Check the arguments and return the objective.

        Args:
            model: An equilibrium model or a module.
            X: Inputs.
            y: Targets.
            loss: A loss, or None.
            chunk: Samples at a time, or None.
            solver: As in `solve_equilibrium`.
            rtol: Likewise.
            max_steps: Likewise.
            where: The function that was called.
            unsolved: `gap` or `last`.

        Raises:
            ArgumentError: One is not what is allowed.
        """
        if unsolved not in ("gap", "last"):
            raise ArgumentError(f"`unsolved` of {where} must be gap or last. Got {unsolved!r}.")
        if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
            raise ArgumentError(f"`chunk` of {where} must be an integer >= 1 or None. Got {chunk!r}.")
        if loss is not None and not callable(loss):
            raise ArgumentError(f"`loss` of {where} must be a function of predictions and targets. Got {loss!r}.")
        if isinstance(model, EquilibriumModel):
            options = {"solver": solver, "rtol": rtol, "max_steps": max_steps}
            return cls(
                _detached(model.parameters()), _of_model(model, X, y, loss, chunk, options), where, unsolved == "last"
            )
        if not isinstance(model, nn.Module):
            raise ArgumentError(
                f"`model` of {where} must be an equilibrium model or a torch.nn.Module. Got {type(model).__name__}."
            )
        if loss is None or X is None or y is None:
            raise ArgumentError(f"{where} of a torch.nn.Module needs `X`, `y` and `loss`.")
        return cls(_detached(dict(model.named_parameters())), _of_module(model, X, y, loss, chunk), where)

    def centre(self) -> float:
        """Return the loss at the model.

        Raises:
            ArgumentError: Two evaluations differ, or it is not finite.
            EquilibriumError: An equilibrium is not found.
        """
        value, failed = self.evaluate(self.parameters)
        if failed is not None and not self.last:
            counted = ", ".join(f"{count} {status.label}" for status, count in failed.counts().items())
            raise EquilibriumError(
                f"The equilibrium at the model itself is not found; {self.where} needs it. "
                f"Of the last samples: {counted}. Raise `max_steps`, loosen `rtol`, or use another solver.",
                failed,
            )
        again, _ = self.evaluate(self.parameters)
        if value != again:
            raise ArgumentError(
                f"Two evaluations of the loss by {self.where} differ ({value:g} and {again:g}): the model draws random "
                "numbers, or changes as it is called. Put it into evaluation mode (`.eval()`)."
            )
        if not math.isfinite(value):
            raise ArgumentError(f"The loss of {self.where} must be finite at the model. Got {value}.")
        return value

    def at(self, values: Values) -> float:
        """Return the loss at parameters; NaN where an equilibrium is not found, unless the last states count."""
        value, failed = self.evaluate(values)
        if failed is not None:
            self.failed.append(failed)
        return value if math.isfinite(value) and (failed is None or self.last) else math.nan


def _detached(values: Mapping[str, Tensor]) -> Values:
    if not values:
        raise ArgumentError("`model` must have a parameter. Got none.")
    return {name: value.detach() for name, value in values.items()}


def _chunks(count: int, chunk: int | None) -> list[slice]:
    size = chunk or max(count, 1)
    return [slice(start, start + size) for start in range(0, max(count, 1), size)]


def _number(found: object, where: str = "`loss`") -> float:
    if isinstance(found, Tensor) and found.numel() != 1:
        raise ArgumentError(f"{where} must return one number. Got a tensor of shape {tuple(found.shape)}.")
    return float(found)  # type: ignore[arg-type]


def _of_model(
    model: EquilibriumModel, X: Tensor | None, y: Tensor | None, loss: Loss | None, chunk: int | None, options: Any
) -> Callable[[Values], tuple[float, Equilibrium | None]]:
    inputs, targets = model.data(X, y)
    rows, state = model.input_rows(inputs), model.signature.state
    declared = None if loss is not None else output_loss(model, inputs, targets)

    @torch.no_grad()
    def evaluate(values: Values) -> tuple[float, Equilibrium | None]:
        features, predictions, worst = [], [], None
        for part in _chunks(len(rows), chunk if state else None):
            some = model.inputs_of(rows[part]) if state else inputs
            if state:
                Z, failed = _solved(model, some, values, options)
                worst = worst if failed is None else failed
            else:
                Z = model.initial_state(some)
            features.append(Z)
            predictions.append(model.predictions(Z, some, values))
        outputs = torch.cat(predictions)
        if loss is not None:
            return _number(loss(outputs, targets)), worst
        assert declared is not None
        more = {**values, state: model.declared(state, torch.cat(features))} if state else values
        return float(declared.value(outputs, more)), worst

    return evaluate


def _solved(model: EquilibriumModel, X: Tensor, values: Values, options: Any) -> tuple[Tensor, Equilibrium | None]:
    """Return the equilibrium, and the last solve where a sample is not solved."""
    rows = model.input_rows(X)
    if len(rows) <= _MANY:
        found = solve_equilibrium(model, X, parameters=values, raise_on_failure=False, **options)
        return found.value, None if found.all_converged else found
    left, state, most = torch.arange(len(rows), device=rows.device), model.initial_state(X), options["max_steps"]
    for start in range(0, max(most, 1), _ROUND):
        found = solve_equilibrium(
            model,
            model.inputs_of(rows[left]),
            parameters=values,
            initial=state[left],
            raise_on_failure=False,
            **options | {"max_steps": min(_ROUND, most - start)},
        )
        state[left] = found.value
        left = left[~found.converged]
        if not len(left):
            return state, None
    return state, found


def _of_module(
    module: nn.Module, X: Tensor, y: Tensor, loss: Loss, chunk: int | None
) -> Callable[[Values], tuple[float, Equilibrium | None]]:
    buffers = {name: value.clone() for name, value in module.named_buffers()}

    @torch.no_grad()
    def evaluate(values: Values) -> tuple[float, Equilibrium | None]:
        # Copies of the buffers: batch norm in training mode writes into them.
        own = {**values, **{name: value.clone() for name, value in buffers.items()}}
        outputs = torch.cat([torch.func.functional_call(module, own, (X[part],)) for part in _chunks(len(X), chunk)])
        return _number(loss(outputs, y)), None

    return evaluate
