"""A counterexample as a short script that reproduces both sides with NumPy alone.

`tangents` differentiates formulas, `printer` writes them in NumPy, `script` puts the script together.
"""

from __future__ import annotations

import keyword
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ntk_deq.errors import NtkDeqError
from ntk_deq.language.calls import Call
from ntk_deq.language.format import ATOM, POWER, PRODUCT, SIGN, SUM
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.record import Function
from ntk_deq.language.shapes import Shapes
from ntk_deq.language.tree import BOUND, QUANTIFIERS, Expr, Kind, Sign, Span
from ntk_deq.language.types import SCALAR, Size, Sort, Type, shape_type


class UnwritableError(NtkDeqError):
    """A formula that has no form in a NumPy script; the message says which, and why."""


Shape = tuple[int, ...]

_NOWHERE = Span(0, 0)

_LARGEST = 10**15  # an integer beyond it is written as a float


@dataclass(frozen=True)
class Code:
    """A piece of Python: its text, the shape of its value (`()` for a number), and how tightly it binds."""

    text: str
    shape: Shape
    binding: int = ATOM

    def at(self, least: int) -> str:
        """Return the text, in brackets where it binds less tightly than `least`."""
        return self.text if self.binding >= least else f"({self.text})"

    def __format__(self, spec: str) -> str:
        """Return the text in a pattern of a record: as a factor (f), as the last one (s), inside of a call."""
        return self.at({"": SUM, "f": PRODUCT, "s": SIGN}[spec])

    @property
    def number(self) -> Code:
        """The value as a number; a matrix of one entry is read as that entry."""
        if not self.shape:
            return self
        if self.shape != (1, 1):
            raise UnwritableError(f"a matrix of the shape {self.shape} stands where a number is needed")
        return Code(f"{self.at(ATOM)}.item()", ())


class Printer(ABC):
    """Writes expressions; what a name, a step or a call of the model means is the subclass's to say."""

    @abstractmethod
    def name(self, name: str) -> Code:
        """Return the code of a name."""

    @abstractmethod
    def special(self, expr: Expr) -> Code:
        """Return the code of a step's value, of `at`, or of a call of the model or a derivative."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the value of a size letter."""

    def shape(self, expr: Expr) -> Shape:
        """Return the shape of an expression's value."""
        return self.code(expr).shape

    def code(self, expr: Expr) -> Code:
        """Return an expression as Python.

        Raises:
            UnwritableError: It has no form in NumPy here.
        """
        match expr.kind:
            case Kind.NUMBER:
                return _number(expr)
            case Kind.NAME:
                return self.name(expr.name)
            case Kind.INDEX | Kind.AT:
                return self.special(expr)
            case Kind.CALL if expr.args and expr.args[0].kind is Kind.FUNCTION and expr.name not in ("grad", "jac"):
                raise UnwritableError(f"`{expr.name}` of a function is not written out")
            case Kind.CALL if expr.name in ("grad", "jac", "next", "fixed_point"):
                return self.special(expr)
            case Kind.CALL if (record := FUNCTIONS.get(expr.name)) is not None and record.takes_sizes:
                return _of_sizes(record, [self._whole(arg) for arg in expr.args])
            case Kind.CALL if expr.name in _PIECES:
                return _piece(expr.name, self.code(expr.args[0]), [self._whole(arg) for arg in expr.args[1:]])
            case Kind.CALL:
                return _call(expr.name, [self.code(arg) for arg in expr.args])
            case Kind.POWER:
                return self._power(expr)
            case _ if expr.kind in _OPERATORS:
                return _OPERATORS[expr.kind](*(self.code(arg) for arg in expr.args))
            case _:
                raise UnwritableError(f"`{expr.kind}` is no value")

    def _whole(self, expr: Expr) -> int:
        """Return a size, an index or a whole exponent: whole numbers and size letters with + - and *."""
        if expr.kind is Kind.NAME:
            return self.size(expr.name)
        if expr.kind is Kind.NUMBER and expr.value is not None:
            return int(expr.value)
        parts = list(map(self._whole, expr.args))
        match expr.kind:
            case Kind.NEGATE:
                return -parts[0]
            case Kind.ADD:
                return parts[0] + parts[1]
            case Kind.SUBTRACT:
                return parts[0] - parts[1]
            case Kind.MULTIPLY:
                return parts[0] * parts[1]
        raise UnwritableError(f"`{expr.kind}` is no whole number")

    def _power(self, expr: Expr) -> Code:
        base, exponent = self.code(expr.args[0]), expr.args[1]
        if len(base.shape) == 2 and base.shape != (1, 1):
            return Code(f"np.linalg.matrix_power({base.text}, {self._whole(exponent)})", base.shape)
        raised = self.code(exponent).number
        return Code(f"{base.number.at(ATOM)}**{raised.at(SIGN)}", (), POWER)


def _number(expr: Expr) -> Code:
    assert expr.value is not None
    if expr.value.denominator == 1 and abs(expr.value) <= _LARGEST:
        return Code(str(expr.value), (), ATOM if expr.value >= 0 else SIGN)
    try:
        return Code(repr(float(expr.value)), ())
    except OverflowError:
        raise UnwritableError("a number beyond those of float64") from None


def _negate(part: Code) -> Code:
    return Code(f"-{part.at(SIGN)}", part.shape, SIGN)


def _sum(sign: str) -> Callable[[Code, Code], Code]:
    def build(left: Code, right: Code) -> Code:
        if left.shape != right.shape:
            left, right = left.number, right.number
        return Code(f"{left.at(SUM)} {sign} {right.at(PRODUCT)}", left.shape, SUM)

    return build


def _multiply(left: Code, right: Code) -> Code:
    if left.shape and right.shape and left.shape[1] == right.shape[0]:
        return Code(f"{left.at(PRODUCT)} @ {right.at(SIGN)}", (left.shape[0], right.shape[1]), PRODUCT)
    if left.shape and right.shape:
        left, right = (left.number, right) if left.shape == (1, 1) else (left, right.number)
    return Code(f"{left.at(PRODUCT)} * {right.at(SIGN)}", left.shape or right.shape, PRODUCT)


def _divide(left: Code, right: Code) -> Code:
    return Code(f"{left.at(PRODUCT)} / {right.number.at(SIGN)}", left.shape, PRODUCT)


def _transpose(part: Code) -> Code:
    return Code(f"{part.at(ATOM)}.T", part.shape[::-1])


_OPERATORS: dict[Kind, Callable[..., Code]] = {
    Kind.NEGATE: _negate,
    Kind.ADD: _sum("+"),
    Kind.SUBTRACT: _sum("-"),
    Kind.MULTIPLY: _multiply,
    Kind.DIVIDE: _divide,
    Kind.TRANSPOSE: _transpose,
}

TANGENT = "d:"
"""What the tangent of a name starts with; no name of the claim language has a colon."""

SLOPE = "slope of "
"""What the name of the derivative of a function of one number starts with; no name of the claim language has spaces."""


def _call(name: str, args: Sequence[Code]) -> Code:
    function = FUNCTIONS[name.removeprefix(SLOPE)]
    if not args:
        return Code(function.numpy or name, ())
    first = args[0]
    if function.by_entries:
        return _by_entries(function, args, slope=name.startswith(SLOPE))
    if function.grows and len(args) > 1:
        return Code(f"{name}({', '.join(arg.number.text for arg in args)})", ())
    if function.of_number is not None and not first.shape:
        text = first.at(ATOM)
        return Code(f"{function.of_number}({text})" if function.of_number else text, ())
    if name in _SHAPED:
        return _SHAPED[name](*args)
    return _filled(function, args, [shape_type(arg.shape) for arg in args], [None for _ in args])


def _of_sizes(function: Function, sizes: Sequence[int]) -> Code:
    """A matrix of given sizes; one that is left out is the first one."""
    return _filled(function, [*sizes, sizes[0]], [SCALAR for _ in sizes], [Size.of(size) for size in sizes])


def _filled(function: Function, args: Sequence[Any], types: Sequence[Type], sizes: Sequence[Size | None]) -> Code:
    """Return the pattern of a record with its arguments, of the shape that its rule gives."""
    if function.numpy is None:
        raise UnwritableError(f"`{function.name}` is not written out")
    spans = tuple(_NOWHERE for _ in types)
    found = function.result(Call(function.name, tuple(types), tuple(sizes), spans, _NOWHERE, Shapes({})))
    shape = (found.rows.evaluate({}), found.cols.evaluate({})) if found.sort is Sort.MATRIX else ()
    text = function.numpy.format(*args, shape=shape)
    return Code(text, shape, function.numpy_binding or ATOM)


def _by_entries(function: Function, args: Sequence[Code], *, slope: bool) -> Code:
    """A function of each entry, or its slope; what stands behind the first argument is a number."""
    facts, definition = function.entrywise, function.defined(len(args))
    if definition is not None:
        template: str | None = definition.slope if slope else definition.numpy
    else:
        template = None if facts is None else facts.slope if slope else function.numpy
    if template is None:
        raise UnwritableError(f"`{function.name}` is not written out")
    return Code(template.format(args[0].text, *(arg.number.text for arg in args[1:])), args[0].shape)


def _diag(a: Code) -> Code:
    if a.shape[1] == 1:
        return Code(f"np.diagflat({a.text})", (a.shape[0], a.shape[0]))
    return Code(f"vec(np.diag({a.text}))", (a.shape[0], 1))


def _sides(part: Code) -> tuple[int, int]:
    return (part.shape[0], part.shape[1]) if part.shape else (1, 1)


def _block(rows: Sequence[Sequence[Code]]) -> Code:
    text = ", ".join(f"[{', '.join(part.text for part in row)}]" for row in rows)
    return Code(f"np.block([{text}])", (sum(_sides(row[0])[0] for row in rows), sum(_sides(p)[1] for p in rows[0])))


def _block_diagonal(*parts: Code) -> Code:
    def zeros(row: Code, column: Code) -> Code:
        shape = _sides(row)[0], _sides(column)[1]
        return Code(f"np.zeros({shape})", shape)

    places = list(enumerate(parts))
    return _block([[part if i == j else zeros(row, part) for j, part in places] for i, row in places])


_PIECES = frozenset({Sign.ENTRY, Sign.SEGMENT, Sign.ROWS, Sign.COLUMNS, Sign.BLOCK})


def _piece(name: str, matrix: Code, at: list[int]) -> Code:
    if name == Sign.ENTRY:
        row, col = (at[0] - 1, at[1] - 1) if len(at) > 1 else (at[0] - 1, 0)
        return Code(f"{matrix.at(ATOM)}[{row}, {col}].item()", ())
    slices = [f"{at[k] - 1}:{at[k + 1]}" for k in range(0, len(at), 2)]
    sizes = [at[k + 1] - at[k] + 1 for k in range(0, len(at), 2)]
    if name == Sign.COLUMNS:
        slices, sizes = [":", *slices], [matrix.shape[0], *sizes]
    elif len(slices) == 1:
        sizes = [*sizes, matrix.shape[1]]
    return Code(f"{matrix.at(ATOM)}[{', '.join(slices)}]", tuple(sizes))


_SHAPED: dict[str, Callable[..., Code]] = {
    "diag": _diag,
    "blockdiag": _block_diagonal,
    Sign.ROW: lambda *parts: _block([parts]),
    Sign.STACK: lambda *parts: _block([[part] for part in parts]),
}
"""What no pattern says, since blocks, or a vector and a matrix, are not written alike."""


HELPERS = {
    "vec": '''\
def vec(a):
    """The columns of a matrix stacked into one."""
    return np.reshape(a, (-1, 1), order="F")
''',
    "commutation": '''\
def commutation(n, m):
    """The matrix K with K @ vec(A) == vec(A.T) for every n x m matrix A."""
    return np.eye(n * m)[np.arange(n * m).reshape((m, n)).T.ravel()]
''',
    "sqrtm": '''\
def sqrtm(a):
    """The square root of a symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(a)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
''',
    "settled": '''\
def settled(step, state):
    """Iterate a map until rounding alone moves the state."""
    least, since = np.inf, 0
    for _ in range(1_000_000):
        new = step(state)
        change = np.max(np.abs(new - state))
        state = new
        since = 0 if change < least else since + 1
        least = min(least, change)
        if change == 0 or since > 100:
            break
    if not change <= 1e-12 * max(1.0, np.max(np.abs(state))):
        print("the iteration has not settled: its last step still moved an entry by", change)
    return state
''',
    "solved": '''\
def solved(step, state):
    """A fixed point of a map, by Newton's method with slopes from differences."""
    for _ in range(4):
        state = step(state)
    size, unit = state.size, np.eye(state.size)
    for _ in range(50):
        residual = step(state) - state
        width = max(1.0, np.max(np.abs(state)))
        if np.max(np.abs(residual)) <= 1e-14 * width:
            break
        moved = [step(state + 1e-7 * width * np.reshape(row, state.shape)) - step(state) for row in unit]
        slopes = np.reshape(moved, (size, size)).T / (1e-7 * width)
        state = state + np.reshape(np.linalg.solve(unit - slopes, np.ravel(residual)), state.shape)
    change = np.max(np.abs(step(state) - state))
    if not change <= 1e-12 * max(1.0, np.max(np.abs(state))):
        print("no fixed point is found: at the last state the map moves an entry by", change)
    return state
''',
    "linear_solution": '''\
def linear_solution(push, shape):
    """The matrix d with d == push(d), for an affine map."""
    size = shape[0] * shape[1]
    units = [np.reshape(column, shape, order="F") for column in np.eye(size)]
    start = push(np.zeros(shape))
    slopes = np.hstack([vec(push(unit) - start) for unit in units])
    return np.reshape(np.linalg.solve(np.eye(size) - slopes, vec(start)), shape, order="F")
''',
    "jacobian": '''\
def jacobian(along, shape):
    """The derivatives along each entry of a variable, side by side."""
    units = [np.reshape(column, shape, order="F") for column in np.eye(shape[0] * shape[1])] if shape else [1.0]
    return np.hstack([vec(along(unit)) for unit in units])
''',
    "compare": '''\
def compare(left, relation, right):
    """Print both sides of a comparison and its margin, which is negative where it breaks."""
    less = {"<=": 1, "<": 1, ">=": -1, ">": -1}.get(relation)
    distance = np.linalg.norm(np.atleast_2d(left - right))
    margin = np.min(less * (right - left)) if less else distance if relation == "!=" else -distance
    print(left, relation, right, sep="\\n")
    print("margin", repr(float(margin)))
''',
}  # fmt: skip
"""Functions that a script may need, by their names."""
_NEEDS = {"linear_solution": ("vec",), "jacobian": ("vec",)}


def helpers(body: str) -> list[str]:
    """Return the helpers that a text calls, and those that they call."""
    called = {name for name in HELPERS if f"{name}(" in body}
    called |= {needed for name in called for needed in _NEEDS.get(name, ())}
    return [f"\n{text}" for name, text in HELPERS.items() if name in called]


def plain(text: str) -> str:
    """Return a text as it can stand in a comment: on one line, without control characters."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def comparisons(expr: Expr) -> Iterator[tuple[Expr, str, Expr]]:
    """Yield the comparisons that a formula states, those that confine a quantifier left out."""
    if expr.kind is Kind.COMPARE:
        yield from expr.links
        return
    for part in expr.args[:1] if expr.kind in QUANTIFIERS else expr.args:
        yield from comparisons(part)


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one level further in."""
    return [f"    {line}" if line else "" for line in lines]


_TAKEN = {*HELPERS, "np", "math", "float", "abs", "max", "min", "print", "range", "step", "cache"}
_WRITTEN = r"d_|(.*_at|at|model_map|along|push)_\d+$"  # names that a script makes up


def spelt(name: str) -> str:
    """Return a name as Python spells it; one that Python or the script has a meaning for gets an underscore."""
    if name.startswith(TANGENT):
        return f"d_{spelt(name.removeprefix(TANGENT))}"
    if BOUND in name:  # the argument of a function
        return name.replace(BOUND, "_at_")
    if name.endswith("]"):  # a member of a family
        family, _, index = name[:-1].partition("[")
        return f"{family}__{index.replace('-', 'm')}"
    if "__" in name:
        return f"own_{name}"
    taken = keyword.iskeyword(name) or name in _TAKEN or re.match(_WRITTEN, name)
    return f"{name}_" if taken else name
