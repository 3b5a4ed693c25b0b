"""The loss of a model or module as a function of its parameters alone, and directions in their space.

It is evaluated in chunks of samples. Directions are random ones scaled like the weights, and the principal ones of a
walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from ntk_deq.equilibrium.result import Equilibrium
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.systems.checks import check_inputs, check_problem
from ntk_deq.systems.model import EquilibriumModel, output_loss
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
                _detached(model.parameters()),
                _of_model(model, X, y, loss, chunk, options, where),
                where,
                unsolved == "last",
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


def _number(found: object) -> float:
    if isinstance(found, Tensor) and found.numel() != 1:
        raise ArgumentError(f"`loss` must return one number. Got a tensor of shape {tuple(found.shape)}.")
    return float(found)  # type: ignore[arg-type]


def _of_model(
    model: EquilibriumModel,
    X: Tensor | None,
    y: Tensor | None,
    loss: Loss | None,
    chunk: int | None,
    options: Any,
    where: str,
) -> Callable[[Values], tuple[float, Equilibrium | None]]:
    inputs, targets = model.data(X, y)
    if loss is None:
        check_problem(model, inputs, targets, where)
    else:
        check_inputs(model, inputs)
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


class Normalisation(StrEnum):
    """How a random direction is scaled.

    Example:
        >>> Normalisation("filter") is Normalisation.FILTER
        True
    """

    FILTER = "filter"  # each slice along the first axis of a parameter has the norm of the model's; a vector is one
    PARAMETER = "parameter"  # each parameter has the norm of the model's
    NONE = "none"  # all together have the norm of the model's


def random_direction(values: Values, normalisation: Normalisation, generator: torch.Generator | None = None) -> Values:
    """Return a Gaussian direction, scaled to the parameters.

    Args:
        values: The parameters.
        normalisation: How.
        generator: Of the random numbers.

    Example:
        >>> W = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
        >>> found = random_direction({"W": W}, Normalisation.FILTER)["W"]
        >>> [round(norm, 5) for norm in found.norm(dim=1).tolist()]
        [5.0, 0.0]
    """
    drawn = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        for name, value in values.items()
    }
    if normalisation is Normalisation.NONE:
        size = math.sqrt(dot(values, values) / dot(drawn, drawn))
        return {name: size * value for name, value in drawn.items()}
    found = {}
    for name, value in values.items():
        axes = tuple(range(1, value.ndim)) if normalisation is Normalisation.FILTER and value.ndim > 1 else None
        own, norms = (torch.linalg.vector_norm(part, dim=axes, keepdim=True) for part in (value, drawn[name]))
        found[name] = drawn[name] * (own / norms.clamp(min=torch.finfo(value.dtype).tiny))
    return found


def moved(values: Values, directions: Sequence[Values], places: Sequence[float]) -> Values:
    """Return the parameters moved along directions; at zero they are the same numbers."""
    return {
        name: value + sum(place * direction[name] for place, direction in zip(places, directions, strict=True))
        for name, value in values.items()
    }


def dot(first: Values, second: Values) -> float:
    """Return the inner product over all parameters, in float64."""
    return sum(float((value.double() * second[name].double()).sum()) for name, value in first.items())


def cosine(first: Values, second: Values) -> float:
    """Return the cosine of the angle between two directions; 0 where one of them is zero."""
    size = math.sqrt(dot(first, first) * dot(second, second))
    return dot(first, second) / size if size > 0 else 0.0


def walked_values(values: Values, path: Iterable[Mapping[str, Tensor]]) -> list[Values]:
    """Return the differences of a path's points from the model."""
    found = []
    for number, point in enumerate(path):
        for name, value in point.items():
            if name not in values or value.shape != values[name].shape:
                raise ArgumentError(
                    f"`path` of landscape must hold parameters of the model: {', '.join(values)}, in their shapes. "
                    f"Got {name!r} of shape {tuple(value.shape)} at point {number}."
                )
        found.append(
            {name: (point[name].detach() - value if name in point else 0 * value) for name, value in values.items()}
        )
    if not any(dot(point, point) > 0 for point in found):
        raise ArgumentError("`path` of landscape must hold a point other than the model. Got none.")
    return found


def principal(
    values: Values, walked: Sequence[Values], dimensions: int
) -> tuple[tuple[Values, ...], tuple[float, ...]]:
    """Return the principal directions of differences from the model, and the shares of squares that they explain."""
    rows = torch.stack([torch.cat([part.reshape(-1).double() for part in point.values()]) for point in walked])
    _, sizes, axes = torch.linalg.svd(rows, full_matrices=False)
    if len(sizes) < dimensions or not sizes[dimensions - 1] > sizes[0] * 1e-12:  # far above the rounding of an SVD
        raise ArgumentError(
            f"`path` of landscape must span {dimensions} dimensions around the model. Its {len(walked)} points do not."
        )
    shares = (sizes.square() / sizes.square().sum())[:dimensions].tolist()
    found = []
    for axis in axes[:dimensions]:
        parts = axis.split([value.numel() for value in values.values()])
        shaped = zip(values.items(), parts, strict=True)
        found.append({name: part.reshape(value.shape).to(value) for (name, value), part in shaped})
    return tuple(found), tuple(shares)


def projected(walked: Sequence[Values], directions: Sequence[Values]) -> tuple[Tensor, Tensor]:
    """Return the coordinates of differences along orthonormal directions, and the relative distances off them."""
    coordinates = torch.tensor([[dot(point, axis) for axis in directions] for point in walked], dtype=torch.float64)
    squares = torch.tensor([dot(point, point) for point in walked], dtype=torch.float64)
    off = (squares - coordinates.square().sum(dim=1)).clamp(min=0).sqrt()
    return coordinates, off / squares.max().sqrt()
