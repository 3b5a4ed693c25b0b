"""The one loop that every solver runs in: evaluates the map, judges each sample by its true residual, stops it.

Euclidean norms of rows that neither overflow nor underflow, so that tiny and huge states are judged alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.result import Equilibrium, Status, check_map, is_batched, tangents_off
from ntk_deq.equilibrium.solvers import Picard, Solver, as_solver
from ntk_deq.equilibrium.splitting import MonotoneLayer, Splitting
from ntk_deq.errors import ArgumentError, EquilibriumError


def row_norms(rows: Float[Tensor, "B n"]) -> Float[Tensor, " B"]:
    """Return the Euclidean norm of each row, scaled by its largest entry before squaring.

    Without the scaling, a residual of 1e-200 would square to zero and count as converged.

    Args:
        rows: One sample a row; n may be 0.

    Returns:
        The norms; inf or NaN exactly where a row holds a non-finite entry or its norm exceeds the dtype's range.

    Example:
        >>> row_norms(torch.tensor([[3e-200, 4e-200], [0.0, -1e200]], dtype=torch.float64)).tolist()
        [5e-200, 1e+200]
    """
    if rows.shape[1] == 0:
        return rows.new_zeros(rows.shape[0])
    plain = torch.linalg.vector_norm(rows, dim=1)
    info = torch.finfo(rows.dtype)
    if bool(((plain > info.tiny**0.375) & (plain < info.max**0.375)).all()):  # squares are far from either end
        return plain
    largest = rows.abs().amax(dim=1).clamp(min=info.tiny)
    return largest * torch.linalg.vector_norm(rows / largest.unsqueeze(1), dim=1)


# Default rtol in units of eps: a map evaluated near its fixed point returns it up to a few roundings per entry.
RTOL_EPS = 32.0
# Rounding level in units of eps * sqrt(entries): inner products of length n err by about sqrt(n) eps (Higham and Mary,
# 2019, SIAM J. Sci. Comput. 41); 32 leaves room for intermediate values larger than the result.
ROUNDING_EPS = 32.0
# Steps without a new smallest residual after which a residual at rounding level is taken as final.
ROUNDING_PATIENCE = 10
# Steps without a new smallest residual after which a residual above rounding level counts as stagnation. Long, since
# the residual of a non-normal map may grow for hundreds of steps before it falls.
STAGNATION_PATIENCE = 500
# A relative change of the point by so many eps tells how far rounding may move each entry of the image.
NOISE_EPS = 16.0
# Tolerances above so many eps ask about rounding only after so many steps without a smaller residual, and seldom.
PROBED_BELOW, PROBE_PATIENCE, PROBE_REST = 1e4, 3, 16
# Every so many updates, entries that have shrunk out of sight are asked whether they are zero.
DYING_EVERY = 32
# Steps of a splitting between two looks: half of what the slowest sample seems to need. A look costs about two steps.
STRIDES = (4, 32)
# Of at least so many samples of a splitting, those that are left go on by themselves when they are fewer than a share.
FEW, FEWER = 64, 0.5
DEFAULT_MAX_STEPS = 10_000


@dataclass(frozen=True)
class Criteria:
    """When a sample counts as solved, and when it is given up."""

    rtol: float
    atol: float
    max_steps: int

    @classmethod
    def resolve(cls, dtype: torch.dtype, rtol: float | None, atol: float | None, max_steps: int) -> Criteria:
        """Fill in the dtype's defaults and check the values."""
        info = torch.finfo(dtype)
        for name, tolerance in (("rtol", rtol), ("atol", atol)):
            if tolerance is not None and not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
                raise ArgumentError(f"`{name}` must be a finite number >= 0 or None. Got {tolerance!r}.")
        if not (isinstance(max_steps, int) and max_steps >= 0):
            raise ArgumentError(f"`max_steps` must be an integer >= 0. Got {max_steps!r}.")
        return cls(
            rtol=RTOL_EPS * info.eps if rtol is None else rtol,
            # The smallest normal number: no scale of the problem is assumed, and a state that decays to zero ends.
            atol=info.tiny if atol is None else atol,
            max_steps=max_steps,
        )


def solve_fixed_point(
    step: Callable[[Tensor], Tensor],
    initial: Float[Tensor, "*shape"],
    *,
    solver: str | Solver | Splitting = "picard",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    batch_dims: int = 1,
    contraction: float | Tensor | None = None,
    raise_on_failure: bool = True,
) -> Equilibrium:
    """Find z with z = step(z), sample by sample.

    A sample is solved when norm(step(z) - z) <= (1 - q) (atol + rtol norm(z)) and the same holds for each entry by
    itself, so that an entry far smaller than the others is as well known as they are; q is the `contraction`, 0 where
    it is unknown or not below one. An entry whose residual is what rounding makes of it is judged by that. A sample is
    solved too when neither its residual nor that of any entry has made progress for 10 steps and it is at rounding
    level, 32 eps sqrt(n) norm(z) for n entries. Small steps alone never count. Entries that shrink out of sight are
    tried at zero, once, and stay there if the map keeps them there. Solved samples are not moved any more, and a sample
    that turns non-finite cannot touch the others.

    The result carries no gradients; for those, and inside `torch.func` transforms, use `fixed_point`.

    Args:
        step: Any map from a tensor to one of the same shape, dtype and device. Samples must not interact. The solvers
            forward-backward and peaceman-rachford need a `MonotoneLayer`, and iterate a map of their own: it is solved
            to the same tolerance, by its own contraction factor.
        initial: Where to start, floating point.
        solver: A name out of `SOLVERS`, or a solver with options (`make_solver`).
        rtol: Relative tolerance; None: 32 times the dtype's eps.
        atol: Absolute tolerance; None: the dtype's smallest normal number.
        max_steps: Updates allowed.
        batch_dims: How many leading dimensions count samples; with 0 the whole tensor is one sample.
        contraction: A Lipschitz constant q of the map, if known: the factor 1 - q, and `error_bound`.
        raise_on_failure: Whether an unsolved sample is an error; if not, see `status`.

    Returns:
        The point with status, residual, steps and error bound of every sample.

    Raises:
        ArgumentError: An argument is out of range, or the map's output does not match its input.
        EquilibriumError: A sample is not solved and `raise_on_failure` is set; the error's `result` holds it all.

    Example:
        >>> root = solve_fixed_point(torch.cos, torch.ones(1, 1, dtype=torch.float64))
        >>> round(root.value.item(), 12), root.all_converged
        (0.739085133215, True)
    """
    method = as_solver(solver)
    check_map(initial, batch_dims, step)
    criteria = Criteria.resolve(initial.dtype, rtol, atol, max_steps)
    bound = _check_contraction(contraction)
    with torch.no_grad(), tangents_off():
        if isinstance(method, Splitting):
            result = _split(method.layer_of(step, initial, batch_dims), initial.detach(), method, criteria)
        else:
            result = _iterate(step, initial.detach(), method, criteria, batch_dims, bound)
    if raise_on_failure and not result.all_converged:
        raise EquilibriumError(
            f"No fixed point found with the solver {method.name}.\n{result.describe_failures()}", result
        )
    return result


def _split(layer: MonotoneLayer, initial: Tensor, method: Splitting, criteria: Criteria) -> Equilibrium:
    """Iterate the map of a splitting, that of the samples left; residual and bound of the result are the layer's."""
    whole = method.plan(layer)
    point = whole.start(initial).clone()
    status, steps = (torch.zeros(len(point), dtype=torch.int64, device=point.device) for _ in range(2))
    left, some, most = torch.arange(len(point), device=point.device), layer, criteria.max_steps
    while True:
        plan = whole if some is layer else method.plan(some)
        asked = replace(criteria, max_steps=most)
        found = _iterate(plan.step, point[left], Picard(), asked, 1, plan.contraction, _Strides())
        point[left], status[left] = found.value, found.status
        steps[left] += found.steps
        most -= int(found.steps.max()) if len(left) else 0
        again = found.status == int(Status.MAX_STEPS)
        if most == 0 or not bool(again.any()):
            break
        left = left[again]
        some = MonotoneLayer(layer.weight, layer.source[left], layer.activation)
    value = whole.state(point)
    residual = row_norms(layer(value) - value)
    return Equilibrium(
        value=value,
        status=status,
        residual=torch.where(torch.isfinite(residual), residual, math.inf),
        steps=steps,
        contraction=None,
        solver=method.name,
        bound=layer.error_bound(value),
    )


def _iterate(
    step: Callable[[Tensor], Tensor],
    initial: Tensor,
    method: Solver,
    criteria: Criteria,
    batch_dims: int,
    contraction: float | None,
    strides: _Strides | None = None,
) -> Equilibrium:
    shape, batch = initial.shape, initial.shape[:batch_dims]
    samples, entries = math.prod(batch), math.prod(shape[batch_dims:])
    info = torch.finfo(initial.dtype)
    rounding = max(criteria.rtol, ROUNDING_EPS * info.eps * math.sqrt(entries))
    point = initial.reshape(samples, entries)
    state = method.init_state(point)
    failed = torch.zeros(samples, dtype=torch.bool, device=initial.device)
    solved = torch.zeros_like(failed)
    steps = torch.zeros(samples, dtype=torch.int64, device=initial.device)
    idle = torch.zeros_like(steps)  # steps since the smallest residual
    best = initial.new_full((samples,), math.inf)
    # Far from rounding level an entry is held up by rounding only where it cancels: that is asked when it is held up.
    tight = criteria.rtol <= PROBED_BELOW * info.eps
    eager = torch.full_like(solved, tight and strides is None)
    units = _Units(criteria, contraction, point, rest=0 if tight or strides is not None else PROBE_REST)
    count, taken = 0, 1
    while True:
        image = _evaluate(step, point.reshape(shape)).reshape(samples, entries)
        gap = image - point
        residual = row_norms(gap)  # NaN or inf where the image is not finite; every test below fails then
        size = row_norms(point)
        improved = residual < best
        best = torch.where(improved, residual, best)
        near = residual <= size * rounding + criteria.atol
        asked = near & ~(solved | failed)
        if bool(asked.any()):
            each, progress = units.judge(
                lambda z: _evaluate(step, z.reshape(shape)).reshape_as(z),
                point,
                image,
                asked,
                eager | (~improved & (idle + taken >= (1 if tight else PROBE_PATIENCE))),
            )
            solved = solved | each
            improved = improved | progress
        idle = torch.where(improved, 0, idle + taken)
        solved = solved | near & (idle >= ROUNDING_PATIENCE)
        bounded = residual <= best.clamp(min=info.tiny) / info.eps**2
        lost = ~(solved | bounded & (idle < STAGNATION_PATIENCE))
        trial = method.rejects(residual, state)
        failed = failed | (lost if trial is None else lost & ~trial)
        active = ~(solved | failed)
        going = int(active.sum())
        if count == criteria.max_steps or not going:
            break
        if strides is not None and samples >= FEW and going < FEWER * samples:
            break
        proposal, state = method.advance(point, image, residual, state)
        if strides is not None:
            taken = min(strides.after(residual / units.row_allowance(point), active), criteria.max_steps - count)
            for _ in range(taken - 1):
                proposal = step(proposal)
        if going < samples:
            rest = torch.nonzero(~active).squeeze(1)
            proposal = proposal.index_copy(0, rest, point[rest])
        point = proposal
        count, before = count + taken, count
        if count // DYING_EVERY > before // DYING_EVERY:
            point = units.try_zeros(lambda z: _evaluate(step, z.reshape(shape)).reshape_as(z), point, residual, active)
        steps = steps + taken * active
        del image, proposal, gap  # three of the largest tensors, not needed while the map works
    # A failed sample stands still, so that its last residual still tells why it failed.
    finite = torch.isfinite(residual)
    status = torch.where(bounded, int(Status.STAGNATED), int(Status.DIVERGED))
    status = torch.where(finite, status, int(Status.NON_FINITE))
    status = torch.where(failed, status, torch.where(solved, int(Status.CONVERGED), int(Status.MAX_STEPS)))
    residual = torch.where(finite, residual, math.inf)
    return Equilibrium(
        value=(point if count else point.clone()).reshape(shape),  # never a view of `initial`
        status=status.reshape(batch),
        residual=residual.reshape(batch),
        steps=steps.reshape(batch),
        contraction=contraction,
        solver=method.name,
    )


class _Strides:
    """How many steps of a map that contracts are taken until the next look."""

    def __init__(self) -> None:
        self._before: tuple[Tensor, int] | None = None

    def after(self, excess: Tensor, active: Tensor) -> int:
        """Return how many.

        Args:
            excess: The residual of each sample over what is allowed.
            active: Samples that still move.
        """
        least, most = STRIDES
        found = least
        if self._before is not None:
            before, taken = self._before
            rate = (before.log() - excess.log()) / taken
            needed = (excess.log() / rate)[active & torch.isfinite(excess) & (rate > 0)]
            found = max(least, min(most, int(needed.max()) // 2)) if len(needed) else least
        self._before = (excess, found)
        return found


class _Units:
    """Judge the entries of each sample by themselves: how well each is known, and which of them are dying.

    Args:
        criteria: Tolerances.
        contraction: A Lipschitz constant of the map, or None.
        start: Where the iteration starts.
        rest: Looks after one at which the map was asked about rounding before it is asked again.
    """

    def __init__(self, criteria: Criteria, contraction: float | None, start: Tensor, rest: int) -> None:
        self._criteria = criteria
        self._rest, self._rested = rest, rest
        self._share = 1 - contraction if contraction is not None and contraction < 1 else 1.0
        self._eps = torch.finfo(start.dtype).eps
        self._largest = row_norms(start)
        self._probed = torch.zeros(start.shape[0], dtype=torch.bool, device=start.device)
        self._tried = torch.zeros_like(start, dtype=torch.bool)
        self._noise: Tensor | None = None
        self._best = start.new_full((2, start.shape[0]), math.inf)

    def judge(
        self, step: Callable[[Tensor], Tensor], point: Tensor, image: Tensor, near: Tensor, asking: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return which samples near their end are solved entry by entry, and which have come nearer to that.

        Of samples in `asking` it is found out what rounding makes of their entries. Progress is seen in the residuals
        of the entries that are not known yet, absolute and relative to their size: in the one, large entries that only
        rounding moves would hide small ones, and in the other those that cancel.
        """
        rtol, atol = self._criteria.rtol, self._criteria.atol
        count = int(near.sum())
        # Of some samples, their rows alone; of most, all, without a copy.
        some = torch.nonzero(near).squeeze(1) if count < FEWER * len(near) else slice(None)
        near, asking, here = near[some], asking[some], point[some]
        sizes, gaps = here.abs(), (image[some] - here).abs()
        allowed = self._share * (atol + rtol * sizes)
        if self._noise is not None:
            allowed = torch.maximum(allowed, self._noise[some])
        known = gaps <= allowed
        whole = row_norms(gaps) <= self.row_allowance(here, some)
        found = near & whole & known.all(dim=1)
        ask = near & asking & ~found & ~self._probed[some]
        self._rested += 1
        if self._rested > self._rest and bool(ask.any()):
            self._rested = 0
            asked = torch.zeros_like(self._probed)
            asked[some] = ask
            known = known | (gaps <= self._probe(step, point, image, asked)[some])
            found = near & (row_norms(gaps) <= self.row_allowance(here, some)) & known.all(dim=1)
        rest = torch.where(known, 0.0, gaps)
        tiny = torch.finfo(point.dtype).tiny
        lag = torch.stack([row_norms(rest), row_norms(rest / sizes.clamp(min=tiny))])
        best = self._best[:, some]
        moved = near & (lag < best).any(dim=0)
        self._best[:, some] = torch.where(near, torch.minimum(lag, best), best)
        solved, progress = torch.zeros_like(self._probed), torch.zeros_like(self._probed)
        solved[some], progress[some] = found, moved
        return solved, progress

    def row_allowance(self, point: Tensor, some: Tensor | slice = slice(None)) -> Tensor:
        """Return how large the residual of a solved sample may be.

        Args:
            point: The samples.
            some: Which of all they are.
        """
        rtol, atol = self._criteria.rtol, self._criteria.atol
        asked = self._share * (atol + rtol * row_norms(point))
        return asked if self._noise is None else torch.maximum(asked, row_norms(self._noise[some]))

    def _probe(self, step: Callable[[Tensor], Tensor], point: Tensor, image: Tensor, ask: Tensor) -> Tensor:
        """Find out how far a change of every entry by a few roundings moves each entry of the image."""
        places = torch.arange(point.shape[1], device=point.device)
        moved = torch.zeros_like(point)
        # In one pattern of signs the terms of a sum may cancel, and in three hardly ever.
        for pattern in (places % 2, places // 2 % 2, places * places // 3 % 2):
            signs = (1 - 2 * pattern).to(point.dtype)
            moved = torch.maximum(moved, (step(point * (1 + NOISE_EPS * self._eps * signs)) - image).abs())
        moved = torch.where(torch.isfinite(moved), moved, 0.0)
        before = torch.zeros_like(moved) if self._noise is None else self._noise
        self._noise = torch.where(ask.unsqueeze(1), moved, before)
        self._probed = self._probed | ask
        return self._noise

    def try_zeros(self, step: Callable[[Tensor], Tensor], point: Tensor, residual: Tensor, active: Tensor) -> Tensor:
        """Return the point with the entries at zero that have shrunk out of sight, once for each entry.

        A unit that has died while it feeds itself falls towards zero and never gets there. At zero, one evaluation
        tells; one that is fed all the same comes up from there as from any other start.
        """
        size = row_norms(point)
        self._largest = torch.maximum(self._largest, torch.nan_to_num(size, nan=0.0, posinf=0.0))
        reach = self._criteria.rtol * self._largest
        small = (point != 0) & (point.abs() <= reach.unsqueeze(1)) & ~self._tried
        asked = active & small.any(dim=1)
        if not bool(asked.any()):
            return point
        zeroed = torch.where(small & asked.unsqueeze(1), 0.0, point)
        there = row_norms(step(zeroed) - zeroed)
        better = asked & (there <= torch.maximum(residual, self._criteria.rtol * size))
        self._tried = self._tried | (small & better.unsqueeze(1))
        self._best = torch.where(better, math.inf, self._best)
        return torch.where(better.unsqueeze(1), zeroed, point)


def _evaluate(step: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    writes = None if point.is_inference() else point._version
    image = step(point)
    if writes is not None and point._version != writes:
        # Comparing the point with its image would compare it with itself, and call every map solved.
        raise ArgumentError("The map of a fixed point must not write into its argument. Got a map that works in place.")
    if not isinstance(image, Tensor):
        raise ArgumentError(f"The map of a fixed point must return a tensor. Got {type(image).__name__}.")
    for what in ("shape", "dtype", "device"):
        given, got = getattr(point, what), getattr(image, what)
        if given != got:
            shown = (tuple(given), tuple(got)) if what == "shape" else (given, got)
            raise ArgumentError(f"The map of a fixed point must keep the {what} {shown[0]}. Got {shown[1]}.")
    if is_batched(image):
        raise ArgumentError("`solve_fixed_point` cannot run inside `torch.func.vmap`; use `fixed_point` there.")
    return image


def _check_contraction(contraction: float | Tensor | None) -> float | None:
    if contraction is None:
        return None
    number = isinstance(contraction, Real) or (isinstance(contraction, Tensor) and contraction.numel() == 1)
    if not number or float(contraction) < 0:
        raise ArgumentError(f"`contraction` must be a number >= 0 or None. Got {contraction!r:.60}.")
    return float(contraction)
