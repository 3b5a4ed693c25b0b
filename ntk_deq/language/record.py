"""What a record of a function says: the facts that are asked for wherever a function of the language is met.

Rules for the range of a function's values, from the ranges of its arguments; of a matrix, that of its entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from ntk_deq.language.calls import Call, Parameter
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import NOT_NEGATIVE, End, Range, Type

Values = Callable[[Sequence[Range]], Range]


def always(known: Range) -> Values:
    """Return the rule of a function whose values lie in a range, whatever the arguments."""
    return lambda args: known


def positive_part(args: Sequence[Range]) -> Range:
    """Return the range of max(x, 0)."""
    return NOT_NEGATIVE.meet(args[0]) if args[0].high >= 0 else Range.point(0)


def magnitude(args: Sequence[Range]) -> Range:
    """Return the range of the absolute value.

    Example:
        >>> from fractions import Fraction
        >>> found = magnitude([Range(Fraction(-1), Fraction(1), low_open=True, high_open=True)])
        >>> found.low, found.low_open, found.high, found.high_open
        (Fraction(0, 1), False, Fraction(1, 1), True)
    """
    (own,) = args
    if own.low >= 0 or own.high <= 0:
        return own if own.low >= 0 else -own
    high, closed = max((own.high, not own.high_open), (-own.low, not own.low_open))
    return Range(Fraction(0), high, high_open=not closed)


def first(args: Sequence[Range]) -> Range:
    """Return the range of a rearrangement of the argument's entries."""
    return args[0]


def any_of(args: Sequence[Range]) -> Range:
    """Return the range of entries that are each one of an argument's."""
    joined = args[0]
    for other in args[1:]:
        joined = joined.hull(other)
    return joined


def with_zero(args: Sequence[Range]) -> Range:
    """Return the range of the argument's entries among zeros."""
    return args[0].hull(Range.point(0))


def product(args: Sequence[Range]) -> Range:
    """Return the range of products of an entry of each."""
    return args[0] * args[1]


def total(args: Sequence[Range]) -> Range:
    """Return the range of a sum of entries."""
    return NOT_NEGATIVE if args[0].above(0, or_at=True) else Range()


def sum_of_products(args: Sequence[Range]) -> Range:
    """Return the range of a sum of products of an entry of each."""
    return NOT_NEGATIVE if all(arg.above(0, or_at=True) for arg in args) else Range()


def extreme(pick: Callable[[list[tuple[End, bool]]], tuple[End, bool]]) -> Values:
    """Return the rule of the largest or smallest of several numbers; of one matrix, that of its entries."""

    def ranged(args: Sequence[Range]) -> Range:
        low, low_open = pick([(r.low, r.low_open) for r in args])
        high, closed = pick([(r.high, not r.high_open) for r in args])
        return Range(low, high, low_open, not closed)

    return ranged


class Change(StrEnum):
    """A change of a matrix that a function may not notice."""

    SIGN = "sign"
    TRANSPOSE = "transpose"
    ORDER = "order"  # of its rows, and of its columns


class Kink(StrEnum):
    """Where a function of one number has a value and no derivative."""

    NOWHERE = "nowhere"
    CORNER = "a corner at zero"  # the slopes from below and from above differ
    JUMP = "a jump at zero"  # and constant on both sides
    EDGE = "zero, where its domain ends"


class Degree(StrEnum):
    """How the entries of a value depend on those of the matrices that it is computed from."""

    LINEAR = "linear"  # sums of entries of all of them, none of them with a negative sign
    BILINEAR = "bilinear"  # sums of products of an entry of each of two, likewise


class Product(StrEnum):
    """Which product of two matrices of one shape a function is."""

    ENTRIES = "of entries"  # in the same places
    INNER = "inner"  # the sum of those


class Length(StrEnum):
    """Of what a function is the Euclidean length: the root of the sum of the squares of all entries."""

    VECTOR = "vector"  # of a matrix it is something else
    MATRIX = "matrix"


class Structure(StrEnum):
    """What keeps a value in parts, as Kronecker factors, a diagonal or blocks, so that it need not be formed."""

    OWN = "own"  # it has parts whatever its arguments are
    ANY = "any"  # that of any of its arguments
    ALL = "all"  # that of all of them


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What a function is of what is taken over a range, as in `sum(norm(W[l]) for l in 1..L)`.

    Attributes:
        joins: The operator between two of them; None: they are its arguments.
        of_numbers: Whether it takes numbers alone.
        sign: The sign that it is set with, the range below and above; without, its name is set.
    """

    joins: Kind | None = None
    of_numbers: bool = False
    sign: str | None = None


TRANSPOSED = "'"
"""What stands for a transpose where a function is put in another's place."""


@dataclass(frozen=True, kw_only=True)
class Entrywise:
    """What is true of a real function of one number, which acts on a matrix, where it takes one, entry by entry.

    Attributes:
        domain: Where it is defined.
        growth: 1 where it nowhere falls, -1 where it nowhere rises, 0 for neither.
        curvature: 1 where it is convex, -1 where it is concave, 0 for neither.
        kink: Where it has no derivative.
        valued: Whether it has a value where it jumps.
        slopes: Bounds of (f(x) - f(z))/(x - z) for all x and z, from below and above; infinite where there are none.
        sides: Its slopes below and above zero, where it is linear on both sides and zero at zero.
        slope: Its derivative in NumPy, {} the argument.
        formula: What it is in simpler functions of the language, of the argument x.
        derivative: Its derivative in functions of the language, of the argument x, which no formula here divides by.
        primitive: Its integral from 0 to x, likewise.
        of_numbers: Whether its notation is that of a number; of a matrix, its name is set upright.
    """

    domain: Range = field(default_factory=Range)
    growth: int
    curvature: int
    kink: Kink = Kink.NOWHERE
    valued: bool = True
    slopes: tuple[float, float] = (-math.inf, math.inf)
    sides: tuple[int, int] | None = None
    slope: str | None = None
    formula: str | None = None
    derivative: str | None = None
    primitive: str | None = None
    of_numbers: bool = False

    @property
    def lipschitz(self) -> float:
        """A bound of |f(x) - f(z)|/|x - z| for all x and z; inf where there is none, as for what jumps."""
        return max(map(abs, self.slopes))

    @property
    def is_positive_part(self) -> bool:
        """Whether it is max(x, 0)."""
        return self.sides == (0, 1)

    @property
    def proximal(self) -> bool:
        """Whether it is the proximal map of a convex function: it nowhere falls, and has slopes of 1 at most.

        References:
            Moreau, Bulletin de la SMF 93, 1965.
        """
        return self.growth == 1 and self.lipschitz <= 1 and self.domain == Range()


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A function of each entry and of a parameter, a number, that is written out in functions of each entry.

    Attributes:
        names: What `formula` calls the entry and the parameter; it holds for calls with so many arguments.
        formula: What a call means: sums, in which a number is added to every entry, products with numbers, and calls.
        lipschitz: A bound of its slopes in the entry, a formula in the parameter.
        proximal: The parameters for which it is the proximal map of a convex function, from the first number to the
            second one; None: for none.
        primitive: Its integral in the entry from 0, where that has a closed form.
        numpy: A call in NumPy, {0} the entry and {1} the parameter.
        slope: Its derivative in the entry, likewise.
    """

    names: tuple[str, str]
    formula: str
    lipschitz: str
    proximal: tuple[float, float] | None = None
    primitive: str | None = None
    numpy: str
    slope: str


@dataclass(frozen=True)
class Function:
    """A function of the language.

    Attributes:
        name: How it is written.
        group: The heading it stands under in the reference.
        parameters: What its arguments must be.
        summary: One line for people.
        result: The shape rule: the type of a checked call.
        optional: How many parameters, from the last, may be left out.
        repeats: Whether the last parameter may be given any number of times.
        form: How it is written with brackets of its own; None: as a call.
        needs_model: Whether it has a meaning only where the setting names a model.
        entrywise: What is true of it as a function of one number, if it is one.
        definition: What it is as a function of each entry and of a parameter, if it can be called so.
        lipschitz: What it multiplies distances in the Frobenius norm by at most, where it is no function of each entry.
        turns: Whether transposes of its arguments transpose its value; of what acts on each entry that goes without
            saying.
        symmetric: Whether its value, where it is square, is symmetric whatever it is taken of.
        unit: Whether it is the identity matrix.
        product: Which product of its two arguments it is, of those that matrices of one shape have.
        differential: Its change, a formula in its value Y, its argument X and the change D of that.
        eigenvalue: Which eigenvalue of a symmetric matrix it is, counted from the smallest.
        term: Whether the prover has terms for it.
        in_draws: Whether the numbers that a draw is made with may use it.
        commutes: Whether the order of its arguments does not matter.
        reorders: Whether the order of its two arguments changes no more than that of its rows and columns.
        degree: How its entries depend on those of its arguments, where that is so simple.
        grows: Whether it falls nowhere as any of several numbers grows; of one number, `entrywise` says so.
        of_number: The function of one number that it is there, if it has another name; "" where it is that number.
        of_vector: The function that it is of a vector, if it has another name.
        length: Of what it is the Euclidean length.
        structure: Whose structure its value has.
        smooth: Whether it has derivatives of every order wherever it has a value, though it is not of a degree.
        of_symmetric: Whether it has a value at symmetric matrices only.
        partial: Whether it may have no value though its arguments have one; of functions of numbers the domain says so.
        stands_for: A statement's function and how it compares with zero, for one that is short for that.
        blind: The changes of its argument that leave its value as it is.
        values: The range of its values, from those of its arguments; those of matrices are of their entries.
        above: Functions of the same arguments that are nowhere larger.
        mutant: A mutation rule, and the function that it puts in its place.
        infix: The sign between its arguments in print.
        exponent: What its argument is raised to in print.
        mathml: How a call is set, in MathML, off which LaTeX is read; {} is the list of arguments, of several each is
            one of them. Without it, the name is set upright.
        mathml_binding: How tightly that binds as printed, as in `format`; None: as a call.
        numpy: A call in NumPy, {} the argument, or {0} and so on; {0:f} has brackets where it is to be a factor, {0:s}
            where it is to be the last one, {0.shape} is its shape, {shape} that of the value.
        numpy_binding: How tightly that binds, as in `format`; None: as a call.
        lacks: Why a field is not set, for those that are not.
    """

    name: str
    group: str
    parameters: tuple[Parameter, ...]
    summary: str
    result: Callable[[Call], Type]
    optional: int = 0
    repeats: bool = False
    form: str | None = None
    needs_model: bool = False
    entrywise: Entrywise | None = None
    definition: Definition | None = None
    lipschitz: float | None = None
    turns: bool = False
    symmetric: bool = False
    unit: bool = False
    product: Product | None = None
    differential: str | None = None
    eigenvalue: int | None = None
    term: bool = False
    in_draws: bool = False
    commutes: bool = False
    reorders: bool = False
    degree: Degree | None = None
    grows: bool = False
    of_number: str | None = None
    of_vector: str | None = None
    length: Length | None = None
    structure: Structure | None = None
    smooth: bool = False
    of_symmetric: bool = False
    partial: bool = False
    stands_for: tuple[str, str] | None = None
    blind: frozenset[Change] = frozenset()
    values: Values | None = None
    above: frozenset[str] = frozenset()
    mutant: tuple[str, str] | None = None
    infix: str | None = None
    exponent: str | None = None
    mathml: str | None = None
    mathml_binding: float | None = None
    numpy: str | None = None
    numpy_binding: int | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)

    def parameter(self, place: int) -> Parameter:
        """Return what the argument at a place must be."""
        return self.parameters[min(place, len(self.parameters) - 1)]

    @property
    def takes_matrices(self) -> bool:
        """Whether its first argument may be a matrix."""
        return bool(self.parameters) and self.parameters[0] is not Parameter.SCALAR

    @property
    def by_entries(self) -> bool:
        """Whether it acts on each entry of its first argument; what else it takes are numbers."""
        return self.takes_matrices and (self.entrywise is not None or self.definition is not None)

    @property
    def transposes(self) -> bool:
        """Whether transposes of its arguments transpose its value, where both are matrices."""
        return self.turns or self.by_entries

    @property
    def takes_sizes(self) -> bool:
        """Whether it is a matrix of given sizes."""
        return set(self.parameters) == {Parameter.SIZE}

    @property
    def filled(self) -> End | None:
        """The number that all entries of its value are, if it takes sizes alone and there is one."""
        if self.values is None or not self.takes_sizes:
            return None
        known = self.values(())
        return known.low if known.low == known.high else None

    @property
    def exponential(self) -> bool:
        """Whether it is its own derivative."""
        return self.entrywise is not None and self.entrywise.derivative == f"{self.name}(x)"

    def defined(self, count: int) -> Definition | None:
        """Return what a call with so many arguments is written out as; None where it is not."""
        definition = self.definition
        return definition if definition is not None and len(definition.names) == count else None

    @property
    def signature(self) -> str:
        """The call as people read it, for example `kron(matrix, matrix)`."""
        if self.form is not None:
            return self.form
        if not self.parameters:
            return self.name
        required = [str(p) for p in self.parameters[: len(self.parameters) - self.optional]]
        text = ", ".join(required)
        for parameter in self.parameters[len(required) :]:
            text += f"[, {parameter}]"
        return f"{self.name}({text}{', ...' if self.repeats else ''})"

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        most = len(self.parameters)
        return most - self.optional <= count and (count <= most or self.repeats)

    @property
    def counts(self) -> str:
        """How many arguments it takes, in words."""
        if not self.parameters:
            return "no arguments: it is a number"
        least, most = len(self.parameters) - self.optional, len(self.parameters)
        number = f"{least} or {most}" if least != most else str(most)
        return f"{'at least ' if self.repeats else ''}{number} argument{'s' if most > 1 else ''}"


_USUAL = {
    "values": "its values, or their entries, may be any numbers",
    "sides": "it is not linear on both sides of zero",
    "above": "no function is known to be nowhere larger",
    "mutant": "no mutation rule puts another function in its place",
    "mathml": "its name is set upright",
}


def lacking(usual: str = "", **own: str) -> dict[str, str]:
    """Return why fields of a record are not set: some for the usual reason, others for their own.

    Example:
        >>> lacking("mathml", slope="zero wherever it has one")
        {'mathml': 'its name is set upright', 'slope': 'zero wherever it has one'}
    """
    return {name: _USUAL[name] for name in usual.split()} | own
