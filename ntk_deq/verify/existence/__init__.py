"""Whether what a claim says exists does: values found and proven on an instance, or a proof that there are none.

    decision.py     the stage of a judgement: what a judgement leaves open about the existing variables, decided;
                    values are tried, each judged in their place like any instance
    contradiction.py  what contradicts itself: linear constraints, or a combination that is negative everywhere
    numbers.py      numbers: none on an instance, by proof; constants that serve all instances

Here: conclusions and domains read as polynomials in the entries that are looked for, over the rationals.

A search that finds nothing shows nothing. What shows that there is nothing is a contradiction over the rationals, whose
multipliers are checked again, or a proof by `ntk_deq.prove` for numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flint import Ordering, fmpq, fmpq_mat, fmpq_mpoly, fmpq_mpoly_ctx

from ntk_deq.certified.algebraic import UndecidedError, UndefinedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.existence import names_behind
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.exact import OPERATORS, ExactNames, value_of
from ntk_deq.evaluation.functions import ExactValue as Value
from ntk_deq.evaluation.functions.twins import EXACT
from ntk_deq.falsify.shrink import entry_places
from ntk_deq.language.domain import DomainKind, Free
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.tree import Expr, Kind, names_in
from ntk_deq.language.types import ONE
from ntk_deq.verify.equations.plan import shape_at

MOST_UNKNOWNS = 32
"""Entries that are looked for together."""

_DEGREE = 2
_ALTERNATIVES = 8
_UNREAD = (UndecidedError, UndefinedError, NtkDeqError, TypeError, AttributeError, AssertionError, ValueError)


@dataclass(frozen=True)
class Bound:
    """A polynomial that must be positive, or not negative.

    Attributes:
        form: The polynomial.
        strict: Whether zero breaks it.
        names: The conclusions that ask for it; none where a domain does.
    """

    form: fmpq_mpoly
    strict: bool
    names: frozenset[str]


@dataclass(frozen=True)
class Semidefinite:
    """A symmetric matrix of polynomials of degree one without negative eigenvalues."""

    entries: tuple[tuple[fmpq_mpoly, ...], ...]
    names: frozenset[str]

    def along(self, direction: Sequence[fmpq]) -> Bound:
        """Return what it says of a direction v: v'Xv >= 0."""
        order = range(len(direction))
        form = sum(
            (
                self.entries[i][j] * (direction[i] * direction[j])
                for i in order
                for j in order
                if direction[i] * direction[j] != 0
            ),
            self.entries[0][0] * fmpq(0),
        )
        return Bound(form, strict=False, names=self.names)


@dataclass
class Constraints:
    """What is asked of the unknowns of one instance, as far as it is polynomial.

    Attributes:
        context: The ring.
        values: The unknown variables as matrices of polynomials.
        equations: Polynomials that must be zero.
        bounds: Those that must not be negative.
        semidefinite: Matrices that must be.
        complete: Whether nothing was left out.
    """

    context: fmpq_mpoly_ctx
    values: dict[str, Value]
    equations: list[tuple[fmpq_mpoly, frozenset[str]]] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    semidefinite: list[Semidefinite] = field(default_factory=list)
    complete: bool = True

    @property
    def unknowns(self) -> int:
        """How many numbers are looked for."""
        return int(self.context.nvars())

    def at(self, point: Sequence[fmpq]) -> dict[str, Value]:
        """Return the values of the variables at a point."""
        found: dict[str, Value] = {}
        for name, known in self.values.items():
            assert isinstance(known, ExactMatrix)
            found[name] = known.mapped(lambda entry: entry(*point))  # type: ignore[operator]
        return found


def constraints_of(claim: Claim, names: ExactNames, sizes: Mapping[str, int]) -> list[Constraints]:
    """Return the constraints that a claim puts on what it says exists: one of some alternatives must be met.

    None at all where that is too much; a statement with `or` has an alternative for each side of it.

    Args:
        claim: The claim as stated.
        names: What its other names mean on the instance.
        sizes: The instance's sizes.
    """
    counts = {name: len(_places(free, sizes)) for name, free in claim.exists.items()}
    total = sum(counts.values())
    lets = {name: formula.expr for name, formula in claim.let.items()}
    choices: list[list[tuple[Expr, frozenset[str]]]] = [[]]
    for name in sorted(claim.resting, key=list(claim.conclude).index):
        own = [[(part, frozenset({name})) for part in way] for way in _ways(claim.conclude[name].expr, lets)]
        choices = [[*before, *way] for before in choices for way in own]
    if not 0 < total <= MOST_UNKNOWNS or len(choices) > _ALTERNATIVES:
        return []
    return [_constraints(claim, names, sizes, counts, parts) for parts in choices]


def _ways(expr: Expr, lets: Mapping[str, Expr]) -> list[list[Expr]]:
    """Return the ways in which a statement can be true: lists of statements without `or` at their top."""
    if expr.kind is Kind.NAME and expr.name in lets:
        return _ways(lets[expr.name], lets)
    if expr.kind is Kind.OR:
        return [way for part in expr.args for way in _ways(part, lets)]
    if expr.kind is Kind.AND:
        ways: list[list[Expr]] = [[]]
        for part in expr.args:
            ways = [[*before, *way] for before in ways for way in _ways(part, lets)][: _ALTERNATIVES + 1]
        return ways
    return [[expr]]


def _constraints(
    claim: Claim,
    names: ExactNames,
    sizes: Mapping[str, int],
    counts: Mapping[str, int],
    parts: Sequence[tuple[Expr, frozenset[str]]],
) -> Constraints:
    total = sum(counts.values())
    context = fmpq_mpoly_ctx.get([f"x{k}" for k in range(total)], Ordering.degrevlex)
    generators = list(context.gens())
    found = Constraints(context, {})
    start = 0
    for name, free in claim.exists.items():
        own = generators[start : start + counts[name]]
        start += counts[name]
        found.values[name] = _variable(free, sizes, own, context)
    for name, free in claim.exists.items():
        _read_domain(found, free, found.values[name])
    reader = _Reader(claim, replace(names, known={}), found)
    for expr, where in parts:
        reader.statement(expr, where)
    return found


def _places(free: Free, sizes: Mapping[str, int]) -> list[tuple[tuple[int, float], ...]]:
    """Return the entries that each unknown of a variable stands in, with signs, in the order of the first of them."""
    whole = free.domain.kind in (DomainKind.ORTHOGONAL, DomainKind.UNIT_ROWS)
    places = entry_places(DomainKind.REAL if whole else free.domain.kind, shape_at(free.type, sizes))
    return sorted((tuple(sorted(place)) for place in places), key=lambda place: place[0])


def _variable(free: Free, sizes: Mapping[str, int], own: list[fmpq_mpoly], context: fmpq_mpoly_ctx) -> ExactMatrix:
    rows, columns = shape_at(free.type, sizes)
    entries = [context.from_dict({})] * (rows * columns)
    for unknown, place in zip(own, _places(free, sizes), strict=True):
        for index, sign in place:
            entries[index] = unknown if sign == place[0][1] else -unknown
    return ExactMatrix(rows, columns, entries)  # type: ignore[arg-type]


def _read_domain(found: Constraints, free: Free, value: Value) -> None:
    assert isinstance(value, ExactMatrix)
    domain, entries, nothing = free.domain, value.entries, frozenset[str]()
    match domain.kind:
        case DomainKind.POSITIVE | DomainKind.NONNEGATIVE | DomainKind.INTERVAL | DomainKind.INTEGER:
            for entry in entries:
                if domain.low is not None:
                    found.bounds.append(Bound(entry - _rational(domain.low), domain.low_open, nothing))  # type: ignore[arg-type]
                if domain.high is not None:
                    found.bounds.append(Bound(_rational(domain.high) - entry, domain.high_open, nothing))  # type: ignore[arg-type]
            found.complete &= domain.kind is not DomainKind.INTEGER
        case DomainKind.PSD:
            found.semidefinite.append(Semidefinite(_rows(value), nothing))
        case DomainKind.ORTHOGONAL | DomainKind.UNIT_ROWS:
            whole = domain.kind is DomainKind.ORTHOGONAL
            rows = value.transposed if free.type.cols == ONE and not whole else value  # a vector counts as one row
            gram = rows @ rows.transposed
            pairs = ((i, j) for i in range(gram.shape[0]) for j in range(i, gram.shape[0]) if whole or i == j)
            found.equations += [(gram[i, j] - int(i == j), nothing) for i, j in pairs]  # type: ignore[operator,misc]
        case _:
            pass


def _rational(number: object) -> fmpq:
    return fmpq(number.numerator, number.denominator)  # type: ignore[attr-defined]


def _rows(value: ExactMatrix) -> tuple[tuple[fmpq_mpoly, ...], ...]:
    rows, columns = value.shape
    return tuple(tuple(value[i, j] for j in range(columns)) for i in range(rows))  # type: ignore[misc]


class _UnreadError(NtkDeqError):
    """A formula that is no polynomial in the unknowns."""


class _Reader:
    """Reads statements as constraints."""

    def __init__(self, claim: Claim, names: ExactNames, found: Constraints) -> None:
        self._lets = {name: formula.expr for name, formula in claim.let.items()}
        self._names, self._found = names, found
        self._bound = {*claim.exists} | {
            name for name, expr in self._lets.items() if names_behind(expr, self._lets) & claim.exists.keys()
        }
        self._known: dict[str, Value] = {}

    def statement(self, expr: Expr, names: frozenset[str]) -> None:
        """Read a statement; what cannot be read is left out."""
        if expr.kind is Kind.COMPARE:
            for link in expr.links:
                try:
                    self._comparison(*link, names)
                except _UNREAD:
                    self._found.complete = False
        else:
            self._found.complete = False

    def _comparison(self, left: Expr, sign: str, right: Expr, names: frozenset[str]) -> None:
        if sign in (">", ">="):
            left, right, sign = right, left, "<" if sign == ">" else "<="
        if sign == "!=":
            raise _UnreadError(sign)
        if sign == "==":
            for entry in self._difference(left, right):
                self._found.equations.append((entry, names))
            return
        if self._special(left, sign, right, names):
            return
        for entry in self._difference(left, right):
            self._found.bounds.append(Bound(entry, sign == "<", names))

    def _difference(self, left: Expr, right: Expr) -> list[fmpq_mpoly]:
        """Return right minus left, entry by entry."""
        a, b = self._value(left), self._value(right)
        shape = next((v.shape for v in (a, b) if isinstance(v, ExactMatrix) and v.shape != (1, 1)), (1, 1))
        entries = [[self._polynomial(e) for e in (v.entries if isinstance(v, ExactMatrix) else [v])] for v in (a, b)]
        count = shape[0] * shape[1]
        first, second = (part * count if len(part) == 1 else part for part in entries)
        return [y - x for x, y in zip(first, second, strict=True)]

    def _special(self, left: Expr, sign: str, right: Expr, names: frozenset[str]) -> bool:
        """Read what a norm below a number, an eigenvalue above one, or a largest entry says."""
        found = self._found
        if right.kind is Kind.CALL and right.name == "lambda_sym" and not self._free(right):
            matrix, level = self._matrix(right.args[0]), self._number(left)
            order = matrix.shape[0]
            rows = [
                [self._polynomial(matrix[i, j]) - (level if i == j else 0) for j in range(order)] for i in range(order)
            ]
            if any(entry.total_degree() > 1 for row in rows for entry in row):
                raise _UnreadError("a matrix that is not linear in what is sought")
            found.equations += [(rows[i][j] - rows[j][i], names) for i in range(order) for j in range(i)]
            found.complete &= sign == "<="
            found.semidefinite.append(Semidefinite(tuple(map(tuple, rows)), names))
            return True
        if left.kind is not Kind.CALL or self._free(left) or len(left.args) != 1:
            return False
        if left.name in ("norm", "fro"):
            matrix, level = self._matrix(left.args[0]), self._number(right)
            one = found.context.constant(1)
            found.bounds.append(Bound(one * level, sign == "<", names))
            lines = [list(matrix.entries)]
            if left.name == "norm" and 1 not in matrix.shape:  # each row and each column is no longer than the norm
                high, wide = matrix.shape
                lines = [[matrix[i, j] for j in range(wide)] for i in range(high)]
                lines += [[matrix[i, j] for i in range(high)] for j in range(wide)]
                found.complete = False
            for line in lines:
                squares = sum((self._polynomial(e) * self._polynomial(e) for e in line), one * 0)
                found.bounds.append(Bound(self._polynomial(one * level * level - squares), sign == "<", names))
            return True
        if left.name == "max":
            level = self._number(right)
            entries = self._matrix(left.args[0]).entries
            found.bounds += [Bound(level - self._polynomial(e), sign == "<", names) for e in entries]
            return True
        return False

    def _free(self, expr: Expr) -> bool:
        """Whether a formula rests on no unknown."""
        return not names_in(expr) & self._bound

    def _matrix(self, expr: Expr) -> ExactMatrix:
        value = self._value(expr)
        return value if isinstance(value, ExactMatrix) else ExactMatrix(1, 1, [value])

    def _number(self, expr: Expr) -> fmpq:
        value = self._value(expr)
        number = value.entries[0] if isinstance(value, ExactMatrix) and value.shape == (1, 1) else value
        if not isinstance(number, fmpq):
            raise _UnreadError("no rational number")
        return number

    def _polynomial(self, entry: object) -> fmpq_mpoly:
        if isinstance(entry, fmpq):
            return self._found.context.constant(entry)
        if not isinstance(entry, fmpq_mpoly) or entry.total_degree() > _DEGREE:
            raise _UnreadError("no polynomial")
        return entry

    def _value(self, expr: Expr) -> Value:
        """Return the value of a formula: rational, or polynomial in the unknowns."""
        if self._free(expr):
            return value_of(expr, self._names)
        if expr.kind is Kind.NAME:
            if expr.name in self._found.values:
                return self._found.values[expr.name]
            if expr.name not in self._known:
                self._known[expr.name] = self._value(self._lets[expr.name])
            return self._known[expr.name]
        if expr.kind is Kind.POWER:
            return self._power(expr)
        if expr.kind is Kind.DIVIDE and not self._free(expr.args[1]):
            raise _UnreadError("a divisor that is not known")
        polynomial = expr.kind is Kind.CALL and expr.name in EXACT and FUNCTIONS[expr.name].degree is not None
        args = [self._value(arg) for arg in expr.args]
        if expr.kind is Kind.CALL and not polynomial:
            raise _UnreadError(expr.name)
        if polynomial:
            return EXACT[expr.name](args)
        if expr.kind not in OPERATORS:
            raise _UnreadError(expr.kind.value)
        return OPERATORS[expr.kind](*args)

    def _power(self, expr: Expr) -> Value:
        exponent = self._number(expr.args[1])
        if exponent.q != 1 or not 1 <= exponent <= _DEGREE:
            raise _UnreadError("a power")
        base = self._value(expr.args[0])
        return base if exponent == 1 else OPERATORS[Kind.MULTIPLY](base, base)


def linear_form(form: fmpq_mpoly, count: int) -> tuple[list[fmpq], fmpq] | None:
    """Return the coefficients and the constant of a polynomial of degree one; None of a higher one."""
    row, constant = [fmpq(0)] * count, fmpq(0)
    for powers, factor in form.to_dict().items():
        places = [k for k, power in enumerate(powers) if power]
        if sum(powers) > 1:
            return None
        if places:
            row[places[0]] = factor
        else:
            constant = factor
    return row, constant


def quadratic_form(form: fmpq_mpoly, count: int) -> fmpq_mat:
    """Return the symmetric matrix M with form(x) = [1; x]' M [1; x] for a polynomial of degree two at most."""
    matrix = fmpq_mat(count + 1, count + 1)
    for powers, factor in form.to_dict().items():
        places = [k + 1 for k, power in enumerate(powers) for _ in range(power)]
        if len(places) > 2:
            raise ValueError(f"`form` of quadratic_form must be of degree two at most. Got {form}.")
        i, j = [0, 0, *places][-2:]
        matrix[i, j] = matrix[i, j] + factor / 2
        matrix[j, i] = matrix[j, i] + factor / 2
    return matrix


def forms(found: Constraints) -> Iterator[fmpq_mpoly]:
    """Yield every polynomial among the constraints."""
    yield from (form for form, _ in found.equations)
    yield from (bound.form for bound in found.bounds)
