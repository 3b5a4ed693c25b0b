"""An adaptive embedded Runge-Kutta integrator that steps onto given times, judged by a measure of its caller's.

It has what a long run needs: targets that cost no evaluation, an end wherever the caller says, and a name for every way
in which the step size can collapse.

The implicit integrator of stiff stretches of gradient flow: SciPy's Radau, held to the error per path of the others.

Where the loss is much steeper one way than another, an explicit method must keep to steps of about 3/steepness although
the path has long been smooth. Radau IIA of order 5 is stable at any step; it needs the Hessian, and so a small model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.flow import SAFETY
from ntk_deq.errors import ArgumentError, NtkDeqError, nearest_name


@dataclass(frozen=True)
class Method:
    """An embedded method whose last stage is at the end of the step: the next step's first.

    So the value at the end of a step is known without a further evaluation.

    Attributes:
        order: Its order; the embedded error is of this order in the step.
        understated: With a jump of the right-hand side in the step, the factor by which the embedded error may fall
            short of the true one, where in the step the jump lies at its worst.
        stable: Length of its interval of stability: a decay at a rate r needs steps below stable/r.
        stages: The weights of the stages before each further one; the last are those of the solution. Stage i lies at
            the part sum_j stages[i][j] of the step.
        embedded: The weights of the other solution, the error being the difference.
    """

    order: int
    understated: float
    stable: float
    stages: tuple[tuple[float, ...], ...]
    embedded: tuple[float, ...]

    def on(self, state: Tensor) -> tuple[list[tuple[float, Tensor]], Tensor]:
        """Return the places of the stages with their weights, and the weights of the error, as tensors like `state`."""
        error = [one - other for one, other in zip((*self.stages[-1], 0.0), self.embedded, strict=True)]
        # Rounded, so that a place at the end is at the end.
        return [(round(math.fsum(row), 12), state.new_tensor(row)) for row in self.stages], state.new_tensor(error)


# Tables of Dormand and Prince (1980), of Prince and Dormand (1981), 8(7)13M, and of Bogacki and Shampine (1989).
# The lower order of the first is Shampine's.
# fmt: off
METHODS = {
    "dopri5": Method(5, 253.0, 3.3, (
        (1/5,),
        (3/40, 9/40),
        (44/45, -56/15, 32/9),
        (19372/6561, -25360/2187, 64448/6561, -212/729),
        (9017/3168, -355/33, 46732/5247, 49/176, -5103/18656),
        (35/384, 0, 500/1113, 125/192, -2187/6784, 11/84),
    ), (1951/21600, 0, 22642/50085, 451/720, -12231/42400, 649/6300, 1/60)),
    "dopri8": Method(8, 9.0, 5.5, (
        (1/18,),
        (1/48, 1/16),
        (1/32, 0, 3/32),
        (5/16, 0, -75/64, 75/64),
        (3/80, 0, 0, 3/16, 3/20),
        (29443841/614563906, 0, 0, 77736538/692538347, -28693883/1125000000, 23124283/1800000000),
        (16016141/946692911, 0, 0, 61564180/158732637, 22789713/633445777, 545815736/2771057229,
         -180193667/1043307555),
        (39632708/573591083, 0, 0, -433636366/683701615, -421739975/2616292301, 100302831/723423059,
         790204164/839813087, 800635310/3783071287),
        (246121993/1340847787, 0, 0, -37695042795/15268766246, -309121744/1061227803, -12992083/490766935,
         6005943493/2108947869, 393006217/1396673457, 123872331/1001029789),
        (-1028468189/846180014, 0, 0, 8478235783/508512852, 1311729495/1432422823, -10304129995/1701304382,
         -48777925059/3047939560, 15336726248/1032824649, -45442868181/3398467696, 3065993473/597172653),
        (185892177/718116043, 0, 0, -3185094517/667107341, -477755414/1098053517, -703635378/230739211,
         5731566787/1027545527, 5232866602/850066563, -4093664535/808688257, 3962137247/1805957418, 65686358/487910083),
        (403863854/491063109, 0, 0, -5068492393/434740067, -411421997/543043805, 652783627/914296604,
         11173962825/925320556, -13158990841/6184727034, 3936647629/1978049680, -160528059/685178525,
         248638103/1413531060, 0),
        (14005451/335480064, 0, 0, 0, 0, -59238493/1068277825, 181606767/758867731, 561292985/797845732,
         -1041891430/1371343529, 760417239/1151165299, 118820643/751138087, -528747749/2220607170, 1/4),
    ), (13451932/455176623, 0, 0, 0, 0, -808719846/976000145, 1757004468/5645159321, 656045339/265891186,
        -3867574721/1518517206, 465885868/322736535, 53011238/667516719, 2/45, 0, 0)),
    "bosh3": Method(3, 14.0, 2.5, (
        (1/2,),
        (0, 3/4),
        (2/9, 1/3, 4/9),
    ), (7/24, 1/4, 1/3, 1/8)),
}
"""The methods by name."""
# fmt: on

SLIDING_METHOD = "bosh3"
"""Its stages lie within the step even where f jumps, while those of dopri5 reach out up to 12 times as far."""

# A step at which the right-hand side cannot be evaluated is cut to this part.
CUT = 0.25
# The edge of the region where the right-hand side exists is sought to this part of the time reached.
EDGE = 1e-6
# The next step is at most so many times the last, and at least this part of one that is rejected.
_LARGEST_GROWTH, _LARGEST_CUT = 10.0, 0.2
# A step is no longer than so many times the whole way, however still everything is.
_LONGEST_STEP = 10.0
# A step of fewer units in the last place of the time is no longer a step: stages would fall together.
FEWEST_UNITS = 32


class Advance(StrEnum):
    """How a stretch of integration ended."""

    REACHED = "reached"
    STOPPED = "stopped"
    UNDERFLOW = "underflow"
    REFUSED = "refused"
    ROUGH = "rough"


class EmbeddedRungeKutta:
    """Integrate y' = f(t, y) from t = 0 on, one stretch after another.

    A step is accepted where `measure` of its embedded error is at most one. The next one is chosen by the elementary
    controller, a factor of 0.9 ratio^(-1/order) kept between 0.2 and 10. Each target is stepped onto, so that the state
    there is the method's own value and no interpolation, and the step that was cut short for it is taken up again.

    A step in which `f` raises an `NtkDeqError` has left the region where f exists, and is tried again at a quarter of
    its length. Where that leads to less than a millionth of the time reached, the edge itself has been met.

    Attributes:
        time: The time reached.
        state: The state there.
        slope: f there.
        method: What the next step is made with; it may be changed at any time.
        accepted: Steps accepted so far.
        rejected: Steps tried and rejected so far, refused ones included.
        steepness: norm(f - f')/norm(y - y') over the last two stages of the last accepted step: about the rate of the
            fastest decay where that is what limits the step.
        failure: The error that a stretch ended with, for `Advance.REFUSED`.

    Args:
        function: f(t, y).
        state: y at t = 0, a vector.
        scale: A time over which the solution changes, > 0: the floor of every relative measure of time.
        method: One of `METHODS`.
        measure: Takes the embedded error of a step, its length, and y and f at its start.
        on_accept: Called with the time and the state after each accepted step (f was last called with this very state);
            True ends the stretch there.
        slope: f at t = 0, where it is known.

    Raises:
        ArgumentError: An unknown method.

    References:
        Dormand and Prince (1980); Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, II.4.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> tight = lambda error, step, state, slope: error.norm() / 1e-12
        >>> flow = EmbeddedRungeKutta(lambda t, y: -y, one, scale=1.0, measure=tight, on_accept=lambda t, y: False)
        >>> flow.advance(1.0), round(flow.state.log().item(), 11)
        (<Advance.REACHED: 'reached'>, -1.0)
    """

    def __init__(
        self,
        function: Callable[[float, Tensor], Tensor],
        state: Float[Tensor, " n"],
        *,
        scale: float,
        measure: Callable[[Tensor, float, Tensor, Tensor], float | Tensor],
        on_accept: Callable[[float, Tensor], bool],
        method: str = "dopri5",
        slope: Float[Tensor, " n"] | None = None,
    ) -> None:
        check_method(method, "an integrator")
        self._function, self._measure, self._on_accept = function, measure, on_accept
        self.method, self._scale = method, scale
        self._tables: dict[str, tuple[list[tuple[float, Tensor]], Tensor]] = {}
        self._eps = torch.finfo(state.dtype).eps
        self.time, self.state = 0.0, state
        self.slope = function(0.0, state) if slope is None else slope
        self.step = scale / 100
        self.accepted = self.rejected = 0
        self.steepness = 0.0
        self.failure: NtkDeqError | None = None

    def advance(self, target: float) -> Advance:
        """Go on to the time `target`, > `time`, or to where it cannot go on."""
        while self.time < target:
            proposed = min(self.step, _LONGEST_STEP * target)
            # Written so that NaN is refused too.
            if not proposed >= FEWEST_UNITS * self._eps * (self.time + self._scale):
                return Advance.UNDERFLOW
            cut = target - self.time <= proposed
            taken = target - self.time if cut else proposed
            method = self.method
            try:
                with torch.no_grad():
                    states, slopes, error = self._stages(method, taken)
            except NtkDeqError as failure:
                self.rejected += 1
                self.step = taken * CUT
                if self.step < EDGE * (self.time + self._scale):
                    self.failure = failure
                    return Advance.REFUSED
                continue
            ratio = float(self._measure(error, taken, self.state, self.slope))
            factor = _growth(ratio, METHODS[method].order)
            if not ratio <= 1:
                self.rejected += 1
                self.step = taken * factor
                continue
            self.time = target if cut else self.time + taken
            self.state, self.slope = states[-1], slopes[-1]
            self.accepted += 1
            bent, apart = slopes[-1] - slopes[-2], states[-1] - states[-2]
            distance = float(torch.linalg.vector_norm(apart))
            self.steepness = float(torch.linalg.vector_norm(bent)) / distance if distance else 0.0
            over = self._on_accept(self.time, self.state)
            # A step that was cut short says nothing of the next, nor does one of another method.
            self.step = proposed
            if over:
                return Advance.STOPPED
            if not cut and self.method == method:
                self.step *= factor
        return Advance.REACHED

    def _stages(self, method: str, step: float) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return y and f at the stages after the first, and the embedded error."""
        if method not in self._tables:
            self._tables[method] = METHODS[method].on(self.state)
        rows, weights = self._tables[method]
        gathered = self.state.new_empty(len(rows) + 1, self.state.numel())
        gathered[0] = self.slope
        states, slopes = [], []
        for i, (place, row) in enumerate(rows, start=1):
            states.append(torch.addmv(self.state, gathered[:i].T, row, alpha=step))
            slopes.append(self._function(self.time + place * step, states[-1]))
            gathered[i] = slopes[-1]
        return states, slopes, step * (weights @ gathered)


def _growth(ratio: float, order: int) -> float:
    """Return the factor on the length of a step whose error is `ratio` of what it may be; NaN for NaN."""
    if math.isnan(ratio):
        return math.nan
    most = _LARGEST_GROWTH if ratio == 0 else SAFETY / ratio ** (1 / order)
    return min(_LARGEST_GROWTH, max(most, 1.0 if ratio < 1 else _LARGEST_CUT))


def check_method(method: str, where: str) -> None:
    """Refuse a method that is not one of `METHODS`.

    Args:
        method: The name.
        where: What it was given to, for the message.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> check_method("dopri5", "gradient-flow")
    """
    if not isinstance(method, str) or method not in METHODS:
        near = nearest_name(str(method), METHODS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise ArgumentError(f"`method` of {where} must be one of {', '.join(METHODS)}. Got {method!r}.{hint}")


class ImplicitRungeKutta:
    """Integrate y' = f(t, y) on from where another integrator has come to, while f stays smooth.

    Attributes:
        time: The time reached.
        state: The state there.
        slope: f there.
        step: Length of the next step.
        accepted: Steps accepted so far, those of the other integrator among them.
        rejected: Steps rejected so far, likewise.
        failure: The error that a stretch ended with, for `Advance.REFUSED`.

    Args:
        function: f(t, y).
        jacobian: df/dy.
        time: Where to start.
        state: y there, in float64.
        slope: f there.
        step: Length of the first step.
        scale: A time over which the solution changes.
        allowed: From the length of a step to the error it may make, Euclidean.
        on_accept: Called with the time, the state and the length after each accepted step; True ends the stretch.
        smooth: Whether f has been smooth since the last accepted step; if not, the step is not made, and the stretch
            ends with `Advance.ROUGH`.

    References:
        Hairer and Wanner (1996), Solving Ordinary Differential Equations II, IV.8.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> flow = ImplicitRungeKutta(
        ...     lambda t, y: -1e6 * (y - 1), lambda t, y: -1e6 * torch.ones(1, 1).double(), time=0.0, state=2 * one,
        ...     slope=-1e6 * one, step=1e-8, scale=1.0, allowed=lambda step: 1e-9, on_accept=lambda t, y, h: False,
        ...     smooth=lambda: True,
        ... )
        >>> flow.advance(1.0), abs(flow.state.item() - 1) < 1e-8, flow.accepted < 500
        (<Advance.REACHED: 'reached'>, True, True)
    """

    def __init__(
        self,
        function: Callable[[float, Tensor], Tensor],
        jacobian: Callable[[float, Tensor], Float[Tensor, "n n"]],
        *,
        time: float,
        state: Float[Tensor, " n"],
        slope: Float[Tensor, " n"],
        step: float,
        scale: float,
        allowed: Callable[[float], float],
        on_accept: Callable[[float, Tensor, float], bool],
        smooth: Callable[[], bool],
    ) -> None:
        self._function, self._jacobian, self._allowed = function, jacobian, allowed
        self._on_accept, self._smooth, self._scale = on_accept, smooth, scale
        self.time, self.state, self.slope, self.step = time, state, slope, step
        self.accepted = self.rejected = 0
        self.failure: NtkDeqError | None = None

    def advance(self, target: float) -> Advance:
        """Go on to the time `target`, > `time`, or to where it cannot go on."""
        # Imported late, as the explicit integrator is.
        from scipy.integrate import Radau

        while self.time < target:
            first = min(self.step, target - self.time)
            least = FEWEST_UNITS * torch.finfo(torch.float64).eps * (self.time + self._scale)
            if first < target - self.time and not first >= least:
                return Advance.UNDERFLOW
            try:
                # The first call asks for f at the start, which is known.
                solver = Radau(
                    self._call, self.time, _array(self.state), target, first_step=first, rtol=1e-3, jac=self._matrix
                )
                how = self._steps(solver, target)
            except NtkDeqError as failure:
                self.rejected += 1
                self.step = CUT * first
                if self.step < EDGE * (self.time + self._scale):
                    self.failure = failure
                    return Advance.REFUSED
            else:
                if how is not Advance.REACHED:
                    return how
        return Advance.REACHED

    def _steps(self, solver: object, target: float) -> Advance:
        radau: _Radau = solver  # type: ignore[assignment]
        while radau.status == "running":
            self.step = radau.h_abs
            # The error's norm is the root of a mean square.
            radau.atol, radau.rtol = self._allowed(radau.h_abs) / math.sqrt(self.state.numel()), 0.0
            radau.step()
            if not self._smooth():
                return Advance.ROUGH
            if radau.status == "failed":
                return Advance.UNDERFLOW
            made = radau.t - self.time
            finished = radau.status == "finished"
            self.time = target if finished else radau.t
            self.state, self.slope = self._tensor(radau.y), self._tensor(radau.f)
            # The last step is cut short for the target, and the next need not be.
            self.step = max(self.step, radau.h_abs) if finished else radau.h_abs
            self.accepted += 1
            if self._on_accept(self.time, self.state, made):
                return Advance.STOPPED
        return Advance.REACHED

    def _call(self, time: float, state: object) -> object:
        return _array(self._function(time, self._tensor(state)))

    def _matrix(self, time: float, state: object) -> object:
        return _array(self._jacobian(time, self._tensor(state)))

    def _tensor(self, value: object) -> Tensor:
        return torch.as_tensor(value, dtype=self.state.dtype, device=self.state.device).clone()


class _Radau:
    """What is used of SciPy's solver, which has no types."""

    status: str
    t: float
    y: object
    f: object
    h_abs: float
    atol: float
    rtol: float

    def step(self) -> str | None:
        """Make one step."""


def _array(value: Tensor) -> object:
    return value.detach().cpu().numpy()
