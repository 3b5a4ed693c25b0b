"""The fixed-point solvers, by name.

The interface of a fixed-point solver: given the present point and its image, propose the next point.

Picard iteration: the plain method, and the reference for the others.

Damped (Krasnoselskii-Mann) iteration: breaks cycles of maps that do not contract.

Newton's method, for maps whose derivative is at hand.

Anderson acceleration, type II, safeguarded sample by sample: where it does not help, plain steps are taken.

Splitting iterations (`splitting.py`) are chosen by name here as well; they serve monotone layers alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ntk_deq.equilibrium.splitting import ForwardBackward, PeacemanRachford, Splitting
from ntk_deq.errors import ArgumentError, nearest_name


class Solver(ABC):
    """An iteration for z = f(z); concrete solvers are frozen dataclasses whose fields are their options.

    A solver never decides that a sample is solved or lost: the driver does, by the true residual. It works on all
    samples at once, one sample a row, and must treat rows independently. Its state is an immutable value of its own.
    """

    name: ClassVar[str]

    @abstractmethod
    def init_state(self, point: Float[Tensor, "B n"]) -> Any:
        """Return the state that belongs to a fresh start at `point`."""

    @abstractmethod
    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: Any
    ) -> tuple[Float[Tensor, "B n"], Any]:
        """Propose the next point.

        Args:
            point: The present point z.
            image: f(z).
            residual: norm(f(z) - z) by sample; inf where f(z) is not finite.
            state: What the last call (or `init_state`) returned.

        Returns:
            The next point and the next state. Rows of samples that the driver has stopped are ignored.
        """

    def rejects(self, residual: Float[Tensor, " B"], state: Any) -> Bool[Tensor, " B"] | None:
        """Say which samples stand at a trial point that `advance` will discard; None where there are no trial points.

        The driver does not hold the image of such a point against the sample.
        """
        return None


@dataclass(frozen=True)
class Picard(Solver):
    """Iterate z <- f(z); converges linearly with factor q for a q-contraction.

    References:
        Banach (1922), Fundamenta Mathematicae 3, 133-181.

    Example:
        >>> Picard().name
        'picard'
    """

    name: ClassVar[str] = "picard"

    def init_state(self, point: Float[Tensor, "B n"]) -> None:
        """Return no state."""

    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: None
    ) -> tuple[Float[Tensor, "B n"], None]:
        """Return the image."""
        return image, None


@dataclass(frozen=True)
class Damped(Solver):
    """Iterate z <- z + damping (f(z) - z).

    Converges for non-expansive f with a fixed point when 0 < damping < 1; damping = 1 is Picard iteration.

    Attributes:
        damping: Share of the plain step that is taken, in (0, 1].

    References:
        Krasnoselskii (1955), Uspekhi Mat. Nauk 10, 123-127; Mann (1953), Proc. AMS 4, 506-510.

    Example:
        >>> Damped(damping=0.25)
        Damped(damping=0.25)
    """

    damping: float = 0.5
    name: ClassVar[str] = "damped"

    def __post_init__(self) -> None:
        if not (isinstance(self.damping, int | float) and 0 < self.damping <= 1):
            raise ArgumentError(f"`damping` of the solver damped must be a number in (0, 1]. Got {self.damping!r}.")

    def init_state(self, point: Float[Tensor, "B n"]) -> None:
        """Return no state."""

    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: None
    ) -> tuple[Float[Tensor, "B n"], None]:
        """Return the point between the present one and its image."""
        return point + self.damping * (image - point), None


@dataclass(frozen=True, eq=False)
class Newton(Solver):
    """Iterate z <- z + (I - J)^-1 (f(z) - z), J the derivative of f at z; the plain step where I - J is singular.

    On a map that is linear piece by piece the step from the right piece is exact.

    Attributes:
        systems: Gives I - J of each sample.
    """

    systems: Callable[[Float[Tensor, "B n"]], Float[Tensor, "B n n"]]
    name: ClassVar[str] = "newton"

    def init_state(self, point: Float[Tensor, "B n"]) -> None:
        """Return no state."""

    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: None
    ) -> tuple[Float[Tensor, "B n"], None]:
        """Return the point where the linearised map is at rest."""
        change, info = torch.linalg.solve_ex(self.systems(point), (image - point).unsqueeze(2))
        return torch.where(info.unsqueeze(1) == 0, point + change.squeeze(2), image), None


@dataclass(frozen=True, eq=False)
class AndersonState:
    """What Anderson acceleration remembers of the last accepted points, in buffers that are written in turn.

    Attributes:
        changes: Differences Y of successive residual vectors f(z) - z.
        moves: The matching differences S of points, plus mixing times Y.
        gram: Y'Y of each sample.
        valid: Which columns of each sample may be used.
        point: The last accepted point, or None at the start.
        defect: Its residual vector.
        residual: Its residual norm.
        trial: Samples whose present point is an accelerated one and has to prove itself.
        count: Calls so far.
    """

    changes: Float[Tensor, "B k n"]
    moves: Float[Tensor, "B k n"]
    gram: Float[Tensor, "B k k"]
    valid: Bool[Tensor, "B k"]
    trial: Bool[Tensor, " B"]
    point: Float[Tensor, "B n"] | None = None
    defect: Float[Tensor, "B n"] | None = None
    residual: Float[Tensor, " B"] | None = None
    count: int = 0


@dataclass(frozen=True)
class Anderson(Solver):
    """Iterate z <- z + mixing r - (S + mixing Y) c with c = argmin norm(r - Y c), r = f(z) - z.

    Symbols: the columns of S are the last `memory` differences of points, those of Y of residual vectors.
    The least-squares problem is solved with columns scaled to norm one and a ridge, so a singular one (a constant map,
    repeated points) has a finite solution. An accelerated point whose residual exceeds `decrease` times that of the
    last accepted point is discarded: that sample takes the plain step from the accepted point and forgets its history.

    Attributes:
        memory: Differences kept, >= 1.
        mixing: Share of the residual added, in (0, 1].
        regularisation: Ridge relative to the scaled columns, > 0.
        decrease: Largest accepted ratio of successive residuals, in (0, 1].
        restart_every: Forget the history after this many steps; None: never.

    References:
        Walker and Ni (2011), SIAM J. Numer. Anal. 49, 1715-1735; Zhang, O'Donoghue and Boyd (2020), SIAM J. Optim. 30,
        3170-3197 (safeguard).

    Example:
        >>> Anderson(memory=3).memory
        3
    """

    memory: int = 5
    mixing: float = 1.0
    # 1e-12: the normal equations of unit columns carry rounding errors of about memory * 2e-16; the ridge stays above.
    regularisation: float = 1e-12
    decrease: float = 1.0
    restart_every: int | None = None
    name: ClassVar[str] = "anderson"

    def __post_init__(self) -> None:
        if not (isinstance(self.memory, int) and self.memory >= 1):
            raise ArgumentError(f"`memory` of the solver anderson must be an integer >= 1. Got {self.memory!r}.")
        for option in ("mixing", "decrease"):
            value = getattr(self, option)
            if not (isinstance(value, int | float) and 0 < value <= 1):
                raise ArgumentError(f"`{option}` of the solver anderson must be a number in (0, 1]. Got {value!r}.")
        ridge = self.regularisation
        if not (isinstance(ridge, int | float) and 0 < ridge < float("inf")):
            raise ArgumentError(f"`regularisation` of the solver anderson must be a finite number > 0. Got {ridge!r}.")
        every = self.restart_every
        if every is not None and not (isinstance(every, int) and every >= 1):
            raise ArgumentError(
                f"`restart_every` of the solver anderson must be an integer >= 1 or None. Got {every!r}."
            )

    def init_state(self, point: Float[Tensor, "B n"]) -> AndersonState:
        """Return an empty history."""
        samples, entries = point.shape
        return AndersonState(
            changes=point.new_zeros(samples, self.memory, entries),
            moves=point.new_zeros(samples, self.memory, entries),
            gram=point.new_zeros(samples, self.memory, self.memory),
            valid=torch.zeros(samples, self.memory, dtype=torch.bool, device=point.device),
            trial=torch.zeros(samples, dtype=torch.bool, device=point.device),
        )

    def rejects(self, residual: Float[Tensor, " B"], state: AndersonState) -> Bool[Tensor, " B"]:
        """Say which samples stand at an accelerated point that did not reduce the residual."""
        if state.residual is None:
            return state.trial
        return state.trial & ~(residual <= self.decrease * state.residual)

    def advance(
        self,
        point: Float[Tensor, "B n"],
        image: Float[Tensor, "B n"],
        residual: Float[Tensor, " B"],
        state: AndersonState,
    ) -> tuple[Float[Tensor, "B n"], AndersonState]:
        """Propose the accelerated point, or the plain one where the last accelerated point failed."""
        defect = image - point
        rejected = self.rejects(residual, state)
        valid = state.valid
        right = None
        if state.point is not None and state.defect is not None and state.residual is not None:
            if bool(rejected.any()):
                back = torch.nonzero(rejected).squeeze(1)
                point = point.index_copy(0, back, state.point[back])
                defect = defect.index_copy(0, back, state.defect[back])
                residual = torch.where(rejected, state.residual, residual)
            valid, right = self._remember(point - state.point, defect - state.defect, defect, state)
            valid = valid & ~rejected.unsqueeze(1)
        if self.restart_every is not None and state.count % self.restart_every == 0:
            valid = torch.zeros_like(valid)
        weights = self._weights(state, valid, right)
        plain = torch.add(point, defect, alpha=self.mixing)
        accelerated = (weights != 0).any(dim=1)
        proposal = torch.baddbmm(plain.unsqueeze(1), weights.unsqueeze(1), state.moves, alpha=-1).squeeze(1)
        if not bool(accelerated.all()):
            rest = torch.nonzero(~accelerated).squeeze(1)
            proposal = proposal.index_copy(0, rest, plain[rest])
        new = replace(
            state,
            valid=valid,
            trial=accelerated,
            point=point,
            defect=defect,
            residual=residual,
            count=state.count + 1,
        )
        return proposal, new

    def _remember(
        self,
        move: Float[Tensor, "B n"],
        change: Float[Tensor, "B n"],
        defect: Float[Tensor, "B n"],
        state: AndersonState,
    ) -> tuple[Bool[Tensor, "B k"], Float[Tensor, "B k"]]:
        """Write one difference over the oldest one; return which columns may be used then, and Y'r."""
        slot = (state.count - 1) % self.memory
        state.changes[:, slot] = change
        state.moves[:, slot] = move + self.mixing * change
        # One pass over the history, for two columns: a product with a single one takes ten times as long.
        products, right = torch.bmm(state.changes, torch.stack([change, defect], dim=1).mT).unbind(dim=2)
        state.gram[:, slot] = products
        state.gram[:, :, slot] = products
        valid = state.valid.clone()
        valid[:, slot] = torch.isfinite(products[:, slot]) & (products[:, slot] > 0)
        return valid, right

    def _weights(
        self, state: AndersonState, valid: Bool[Tensor, "B k"], right: Float[Tensor, "B k"] | None
    ) -> Float[Tensor, "B k"]:
        """Solve the ridge-regularised least-squares problem of each sample; columns not in use get weight zero."""
        if right is None:
            return torch.zeros_like(state.gram[:, 0])
        lengths = torch.where(valid, state.gram.diagonal(dim1=1, dim2=2), 1.0).sqrt()
        pairs = valid.unsqueeze(1) & valid.unsqueeze(2)
        gram = torch.where(pairs, state.gram, 0.0) / (lengths.unsqueeze(1) * lengths.unsqueeze(2))
        # The ridge may not fall below rounding level of the dtype, or it would not regularise.
        ridge = max(self.regularisation, 8 * torch.finfo(state.gram.dtype).eps)
        gram.diagonal(dim1=1, dim2=2).add_(ridge)
        solution, _ = torch.linalg.solve_ex(gram, (torch.where(valid, right, 0.0) / lengths).unsqueeze(2))
        weights = solution.squeeze(2) / lengths
        return torch.where(valid & torch.isfinite(weights).all(dim=1, keepdim=True), weights, 0.0)


__all__ = [
    "SOLVERS",
    "SPLITTINGS",
    "Anderson",
    "Damped",
    "Newton",
    "Picard",
    "Solver",
    "as_solver",
    "general_solver",
    "make_solver",
]

SOLVERS: dict[str, type[Solver]] = {cls.name: cls for cls in (Picard, Damped, Anderson)}
"""Those for any map."""

SPLITTINGS: dict[str, type[Splitting]] = {cls.name: cls for cls in (ForwardBackward, PeacemanRachford)}
"""Those for a `MonotoneLayer`."""


def make_solver(name: str, **options: object) -> Solver | Splitting:
    """Build a solver from its name and its options.

    Args:
        name: A key of `SOLVERS` or `SPLITTINGS`.
        options: Fields of that solver; every name is checked.

    Raises:
        ArgumentError: Unknown solver, unknown option (both name the nearest spelling), or a value out of range.

    Example:
        >>> make_solver("damped", damping=0.3)
        Damped(damping=0.3)
    """
    every: dict[str, type[Solver] | type[Splitting]] = {**SOLVERS, **SPLITTINGS}
    if name not in every:
        raise ArgumentError(f"Unknown solver {name!r}. Known solvers: {', '.join(every)}.{_hint(name, every)}")
    cls = every[name]
    allowed = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for option in options:
        if option not in allowed:
            known = f"Its options: {', '.join(allowed)}." if allowed else "It has no options."
            raise ArgumentError(f"The solver {name} has no option {option!r}. {known}{_hint(option, allowed)}")
    return cls(**options)  # type: ignore[arg-type]  # checked by the class


def as_solver(solver: str | Solver | Splitting) -> Solver | Splitting:
    """Return a solver given by name or as an object.

    Example:
        >>> as_solver("picard")
        Picard()
    """
    if isinstance(solver, Solver | Splitting):
        return solver
    if isinstance(solver, str):
        return make_solver(solver)
    names = ", ".join([*SOLVERS, *SPLITTINGS])
    raise ArgumentError(f"`solver` must be a name ({names}) or a Solver. Got {type(solver).__name__}.")


def general_solver(solver: str | Solver) -> Solver:
    """Return a solver given likewise that works for any map.

    Raises:
        ArgumentError: It is a splitting, which needs to know a layer.

    Example:
        >>> general_solver("damped")
        Damped(damping=0.5)
    """
    found = as_solver(solver)
    if isinstance(found, Splitting):
        raise ArgumentError(
            f"The solver {found.name} needs to know W of a map act(W z + c), which `solve_equilibrium` and "
            "`solve_fixed_point` on a MonotoneLayer tell it. Here use 'anderson', and what it found as `initial`."
        )
    return found


def _hint(name: str, allowed: object) -> str:
    near = nearest_name(name, list(allowed))  # type: ignore[call-overload]
    return f" Did you mean {near!r}?" if near else ""
