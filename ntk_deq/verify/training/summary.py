"""What the report and the figures need of a training run that a claim was judged on: plain values only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Condition:
    """One comparison of the initial conditions and the factor by which it is met.

    Attributes:
        name: The hypothesis.
        small: The side that must be the smaller one.
        large: The other side.
        factor: large / small; 1 means just met, infinity that the small side is zero or negative.
    """

    name: str
    small: float
    large: float
    factor: float


@dataclass(frozen=True)
class Start:
    """The start of a run that was judged, and how far from degenerate it is.

    Attributes:
        setting: The setting.
        index: Number of the instance.
        aim: What the constants were chosen for; empty where they were not.
        constants: The values of its scalars.
        defined: Scalars that the claim defines, as far as they were needed to judge the start.
        contraction: Upper bound of the contraction factor of the model's map at the start; None: it has none.
        conditions: The comparisons of the hypotheses there.
        brief: Whether a short run was judged: fewer steps, or less of the loss' fall, than the claim speaks of.
    """

    setting: str
    index: int
    aim: str
    constants: dict[str, float]
    defined: dict[str, float]
    contraction: float | None
    conditions: tuple[Condition, ...]
    brief: bool = False


@dataclass(frozen=True)
class Curve:
    """A quantity along a run, at the judged steps.

    Attributes:
        name: The conclusion it belongs to.
        text: Its formula.
        low: Lower ends of the measured side's balls.
        high: Upper ends.
        bound: The other side, as a float; NaN where it has no value.
        sense: `<=` where the bound is an upper one, `>=` where it is a lower one.
    """

    name: str
    text: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    bound: tuple[float, ...]
    sense: str


@dataclass(frozen=True)
class Rate:
    """A linear rate r of the loss: L ~ exp(-r t), or exp(-r k) per step.

    Attributes:
        value: The rate.
        low: Lower end of its confidence interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TrainingRecord:
    """A training run on one instance, as it was judged.

    Attributes:
        setting: The setting's name.
        index: Number of the instance.
        method: `gradient-descent` or `gradient-flow`.
        role: What it carries of the verdict: `run`, `window` (of descent) or `continuation` (flow to the end).
        step: The step size; None for flow, unless its times are told as steps of descent.
        constants: Values of the claim's given scalars.
        status: Why it stopped, a word.
        reason: The same, a sentence.
        steps: Steps taken.
        evaluations: Gradients computed.
        end: The last step or time.
        at: Judged steps or times, increasing, the first one 0.
        loss: The loss there.
        curves: Both sides of each conclusion that compares two numbers, there.
        conditions: The hypotheses, each with the factor by which it is met.
        path_length: Length of the trajectory in parameter space, at the judged steps.
        displacement: Per parameter: Frobenius distance from the start, at the judged steps.
        predicted: The rate that the loss conclusion states, or None where none does.
        measured: The fitted rate, or None where the run is too short to fit.
        instantaneous: The rate from the kernel, at the judged steps; NaN where it was not computed.
        predicted_steps: Steps (or time) after which the stated rate has brought the loss to the run's floor.
        forward_iterations: Mean iterations of an equilibrium.
        adjoint_iterations: Mean iterations of an adjoint.
        error: Bound or estimate of the distance of the judged parameters from the exact trajectory.
        certified: Whether that is a proven bound.
        covered: Intervals between judged steps on which every conclusion is certain throughout.
        intervals: Their number.
        step_tests: States along the run from which one step of descent was tested against the stated rate.
        step_tests_true: Those of them where the step is certain to make the loss fall as stated.
        seconds: Time spent.
    """

    setting: str
    index: int
    method: str
    role: str
    step: float | None
    constants: dict[str, float]
    status: str
    reason: str
    steps: int
    evaluations: int
    end: float
    at: tuple[float, ...]
    loss: tuple[float, ...]
    curves: tuple[Curve, ...]
    conditions: tuple[Condition, ...]
    path_length: tuple[float, ...]
    displacement: dict[str, tuple[float, ...]] = field(default_factory=dict)
    predicted: Rate | None = None
    measured: Rate | None = None
    instantaneous: tuple[float, ...] = ()
    predicted_steps: float | None = None
    forward_iterations: float = 0.0
    adjoint_iterations: float = 0.0
    error: float | None = None
    certified: bool = False
    covered: int = 0
    intervals: int = 0
    step_tests: int = 0
    step_tests_true: int = 0
    seconds: float = 0.0
