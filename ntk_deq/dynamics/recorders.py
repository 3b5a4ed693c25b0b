"""What is recorded along a run and when: recorders are callables, each with a schedule of its own.

Spectral norms of all parameters along a run in floating point, with a decomposition now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.field import FieldPoint
from ntk_deq.errors import ArgumentError, check_whole, name_hint
from ntk_deq.files.archives import stored_number
from ntk_deq.systems.model import EquilibriumModel

# Half width of the bounds, relative to the norm, from which on a new decomposition is made: below the width of a line
# in a figure. `CarriedNorm` gives proven bounds.
_WIDEST = 1e-3


class SpectralNorms:
    """Bounds on the spectral norm of each parameter, carried by Weyl's inequality |norm(A) - norm(B)| <= fro(A - B).

    A vector's norm is its length and costs no decomposition. Computed in floating point: rounding is not in the bounds.

    References:
        Weyl (1912), Math. Ann. 71, 441-479.
    """

    def __init__(self) -> None:
        self._references: dict[str, Tensor] = {}
        self._norms: dict[str, float] = {}
        self.decompositions = 0

    def __call__(self, seen: Observation) -> Float[Tensor, "p 2"]:
        """Return the lower and the upper bound for each parameter."""
        rows = [self._bounds(name, value) for name, value in seen.parameters.items()]
        return torch.tensor(rows, dtype=torch.float64)

    def _bounds(self, name: str, value: Tensor) -> tuple[float, float]:
        if value.ndim < 2:
            length = float(torch.linalg.vector_norm(value))
            return length, length
        reference = self._references.get(name)
        if reference is not None and (reference.shape, reference.dtype, reference.device) == (
            value.shape,
            value.dtype,
            value.device,
        ):
            distance, norm = float(torch.dist(value, reference)), self._norms[name]
            if distance <= _WIDEST * norm:
                return norm - distance, norm + distance
        norm = float(torch.linalg.matrix_norm(value, ord=2))
        self.decompositions += 1
        self._references[name], self._norms[name] = value.clone(), norm
        return norm, norm

    def state(self) -> dict[str, Any]:
        """Return what a resumed run must know."""
        return {"references": dict(self._references), "norms": dict(self._norms)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what these norms return.
        """
        references, norms = dict(state["references"]), dict(state["norms"])
        if references.keys() != norms.keys() or not all(isinstance(value, Tensor) for value in references.values()):
            raise ValueError("`norm` must remember a tensor and its norm for each parameter")
        self._references = references
        self._norms = {name: stored_number(value, f"norms.{name}") for name, value in norms.items()}


TENSOR_KEY = "__tensor__"
"""Stands for a tensor in the file of a record, so that nothing in one may be called so."""

# Values a decade of the recorders that take a decomposition.
_COSTLY = 10


@dataclass(frozen=True)
class Observation:
    """What a recorder sees at one step of a run. The tensors are the run's own: read them, and keep copies only.

    Attributes:
        at: Number k of the step, or time t of gradient flow.
        parameters: The parameters here.
        start: The parameters at the start.
        point: The loss and its gradient here.
        model: The model.
        path_length: Length of the path of all parameters from the start to here, 0-d.
        gradient_norm: Norm of the gradient over all parameters, 0-d, where the run has it; None: it is worked out when
            it is asked for.
    """

    at: float
    parameters: Mapping[str, Tensor]
    start: Mapping[str, Tensor]
    point: FieldPoint
    model: EquilibriumModel
    path_length: Float[Tensor, ""]
    gradient_norm: Float[Tensor, ""] | None = None


Schedule: TypeAlias = Callable[[int, Observation], bool]
"""Says from the number of the step (descent's k, or how many steps the integrator has accepted) whether to record."""


def every(n: int) -> Schedule:
    """Record at every n-th step, the start included.

    Args:
        n: Distance in steps, >= 1.

    Example:
        >>> [index for index in range(7) if every(3)(index, None)]
        [0, 3, 6]
    """
    check_whole(n, "n", "every")
    return lambda index, observation: index % n == 0


def logarithmic(per_decade: int) -> Schedule:
    """Record at steps spaced evenly in their logarithm, the start and the end included.

    Args:
        per_decade: Values between k and 10 k, >= 1.

    Example:
        >>> [index for index in range(101) if logarithmic(3)(index, None)]
        [0, 1, 3, 5, 10, 22, 47, 100]
    """
    check_whole(per_decade, "per_decade", "logarithmic")
    return Logarithmic(per_decade)


@dataclass(frozen=True)
class Logarithmic:
    """The schedule of `logarithmic`; at the end of a run, which no schedule foresees, a value is recorded as well.

    Attributes:
        per_decade: Values between k and 10 k.
    """

    per_decade: int

    def __call__(self, index: int, observation: Observation | None) -> bool:
        """Say whether a step is one of those."""
        if index < 2:
            return True
        # A power of ten may fall a rounding short of its decade.
        places = [math.floor(self.per_decade * math.log10(number) + 1e-9) for number in (index - 1, index)]
        return places[0] < places[1]


def on_condition(predicate: Callable[[Observation], bool]) -> Schedule:
    """Record where a condition on the observation holds.

    Args:
        predicate: The condition.

    Example:
        >>> halfway = on_condition(lambda seen: seen.point.loss_value < 0.5)
    """
    if not callable(predicate):
        raise ArgumentError(f"`predicate` of on_condition must be callable. Got {predicate!r}.")
    return lambda index, observation: bool(predicate(observation))


@runtime_checkable
class Stateful(Protocol):
    """A function of a recorder that remembers something from step to step, which a resumed run must know."""

    def state(self) -> dict[str, Any]:
        """Return what it remembers: plain values and tensors."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""


_ALWAYS_DUE = every(1)


@dataclass(frozen=True)
class Recorder:
    """A quantity recorded along a run.

    Attributes:
        name: Its name in the run's series; not `__tensor__`, which files of records keep for themselves.
        function: From an observation to a real number or a dense real tensor, whose shape never changes.
        when: At which steps; one of `every`, `logarithmic`, `on_condition`, or a function of the same form.

    Example:
        >>> largest = Recorder("largest", lambda seen: seen.point.residual.abs().max(), logarithmic(20))
    """

    name: str
    function: Callable[[Observation], Tensor | float]
    when: Schedule = _ALWAYS_DUE

    def __post_init__(self) -> None:
        """Refuse what is no recorder."""
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"`name` of a recorder must be a text that is not empty. Got {self.name!r}.")
        if self.name == TENSOR_KEY:
            raise ArgumentError(f"`name` of a recorder must not be {TENSOR_KEY!r}, which stands for tensors in files.")
        for what, value in (("function", self.function), ("when", self.when)):
            if not callable(value):
                raise ArgumentError(f"`{what}` of the recorder {self.name!r} must be callable. Got {value!r}.")


def _gradient_norm(seen: Observation) -> Tensor:
    if seen.gradient_norm is not None:
        return seen.gradient_norm
    norms = [torch.linalg.vector_norm(gradient) for gradient in seen.point.gradients.values()]
    return torch.linalg.vector_norm(torch.stack(norms))


def _displacement(seen: Observation) -> Tensor:
    return torch.stack([torch.linalg.vector_norm(v - seen.start[name]) for name, v in seen.parameters.items()])


def _sigma_min(seen: Observation) -> Tensor:
    state = seen.point.state
    return torch.linalg.svdvals(state)[-1] if state.numel() else state.new_full((), torch.nan)  # there is none


def _iterations(seen: Observation) -> Tensor:
    return torch.tensor([seen.point.forward_steps, seen.point.adjoint_steps], dtype=torch.float64)


BUILT_IN: dict[str, Callable[[], Recorder]] = {
    "loss": lambda: Recorder("loss", lambda seen: seen.point.loss_value),
    "gradient_norm": lambda: Recorder("gradient_norm", _gradient_norm),
    "norm": lambda: Recorder("norm", SpectralNorms()),
    "displacement": lambda: Recorder("displacement", _displacement),
    "sigma_min": lambda: Recorder("sigma_min", _sigma_min, logarithmic(_COSTLY)),
    "path_length": lambda: Recorder("path_length", lambda seen: seen.path_length),
    "iterations": lambda: Recorder("iterations", _iterations),
}
"""What makes each recorder that goes by name."""

ALWAYS = ("loss", "gradient_norm")
"""What every run records."""


def listed(wanted: Iterable[str | Recorder]) -> tuple[str | Recorder, ...]:
    """Return the wanted recorders as they were given.

    Args:
        wanted: Names of built-in recorders, and recorders.

    Raises:
        ArgumentError: It is no list, or holds something else.

    Example:
        >>> listed(name for name in ["norm", "sigma_min"])
        ('norm', 'sigma_min')
    """
    if isinstance(wanted, str | Recorder) or not isinstance(wanted, Iterable):
        raise ArgumentError(f"`record` must be a list of names and recorders. Got {wanted!r}.")
    items = tuple(wanted)
    for item in items:
        if not isinstance(item, Recorder):
            _by_name(item)
    return items


def recorders(wanted: Iterable[str | Recorder]) -> tuple[Recorder, ...]:
    """Return the recorders of a run: those that are always there, then the wanted ones.

    Built-in ones go by name: `loss`, `gradient_norm` (over all parameters), `norm` (bounds on the spectral norm of each
    parameter, T x parameters x 2), `displacement` (Frobenius distance of each parameter from its start), `sigma_min`
    (of the state, at ten steps a decade), `path_length`, `iterations` (forward and adjoint).

    Args:
        wanted: Names and recorders. A recorder named like a built-in one takes its place.

    Raises:
        ArgumentError: No list, an unknown name, or a name twice.

    Example:
        >>> [recorder.name for recorder in recorders(["norm"])]
        ['loss', 'gradient_norm', 'norm']
    """
    found: dict[str, Recorder] = {}
    for item in listed(wanted):
        recorder = item if isinstance(item, Recorder) else _by_name(item)
        if recorder.name in found:
            raise ArgumentError(f"`record` must name each recorder once. Got {recorder.name!r} twice.")
        found[recorder.name] = recorder
    always = {name: _by_name(name) for name in ALWAYS}
    return tuple({**always, **found}.values())


def _by_name(name: object) -> Recorder:
    if isinstance(name, str) and name in BUILT_IN:
        return BUILT_IN[name]()
    hint = name_hint(name, BUILT_IN) if isinstance(name, str) else ""
    raise ArgumentError(f"`record` knows {', '.join(BUILT_IN)} and takes a Recorder. Got {name!r}.{hint}")
