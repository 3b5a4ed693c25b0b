"""Calls of the claim language: what an argument must be, a call whose arguments fit, and the rules for its shape."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from ntk_deq.language.shapes import Shapes, fail
from ntk_deq.language.tree import Span
from ntk_deq.language.types import BOOLEAN, ONE, SCALAR, Size, Sort, Type


class Parameter(StrEnum):
    """What an argument of a function must be; the text is what people read in a signature."""

    SCALAR = "scalar"
    MATRIX = "matrix"
    SQUARE = "square matrix"
    VECTOR = "vector"
    VALUE = "scalar or matrix"
    SIZE = "size"  # a sum of products of positive integers and size letters
    INDEX = "index"  # of a row or column, from 1: like a size, and with -
    VARIABLE = "variable"  # the bare name of a free variable
    FUNCTION = "function"  # the bare name of a function of each entry
    OPERAND = "function of an argument"  # a function that the claim defines, a partial application, `u -> f`
    STATEMENT = "statement"
    STATE = "state"  # a matrix of the shape of the model's state

    def admits(self, type_: Type, shapes: Shapes) -> bool:
        """Whether a value of a type can stand here; sizes, variables and states are checked where they are read."""
        match self:
            case Parameter.SCALAR:
                return shapes.is_scalar(type_)
            case Parameter.MATRIX:
                return type_.sort is Sort.MATRIX
            case Parameter.SQUARE:
                return shapes.is_square(type_)
            case Parameter.VECTOR:
                return shapes.is_vector(type_)
            case Parameter.VALUE:
                return type_.sort is not Sort.BOOLEAN
            case Parameter.STATEMENT:
                return type_.sort is Sort.BOOLEAN
            case Parameter.OPERAND:
                return False  # a function has no type
            case _:
                return True


class Role(Enum):
    """What a node is read as, which its parent decides."""

    VALUE = auto()
    STEP = auto()  # inside Z[...]
    SIZE = auto()  # an argument of I, zeros, ones, commutation
    PLACE = auto()  # an index of A{...}
    VARIABLE = auto()  # the name in grad(f, x)
    CONDITION = auto()  # behind `with`
    BOUND = auto()  # a side of a comparison behind `with`
    MEMBER = auto()  # inside the first brackets of a family


@dataclass(frozen=True)
class Call:
    """A call whose arguments have been checked one by one against the parameters of its function.

    Attributes:
        name: The function.
        types: The types of the arguments; of a function, those of its value and of its own argument.
        sizes: For size and index arguments the size, for others None.
        spans: Where the arguments stand.
        span: Where the call stands.
        shapes: The size letters in force.
    """

    name: str
    types: tuple[Type, ...]
    sizes: tuple[Size | None, ...]
    spans: tuple[Span, ...]
    span: Span
    shapes: Shapes

    def size(self, index: int) -> Size:
        """Return a size argument; one that was left out is the first one."""
        size = self.sizes[index] if index < len(self.sizes) else self.sizes[0]
        if size is None:
            fail(self.span, f"argument {index + 1} of {self.name} is no size.")
        return size

    def entries(self, index: int) -> Size:
        """Return how many entries an argument has."""
        if self.types[index].sort is not Sort.MATRIX:
            return ONE
        return self.shapes.times(self.types[index].rows, self.types[index].cols, self.spans[index])


def scalar_shape(call: Call) -> Type:
    """Return a number."""
    return SCALAR


def same_shape(call: Call) -> Type:
    """Return the argument's type; a step index is a number here."""
    return SCALAR if call.types[0].sort.is_index else call.types[0]


def shape_of_second(call: Call) -> Type:
    """Return the second argument's type; a step index is a number here."""
    return SCALAR if call.types[1].sort.is_index else call.types[1]


def _matrix(rows: Size, cols: Size) -> Type:
    return Type(Sort.MATRIX, rows, cols)


def identity_shape(call: Call) -> Type:
    """Return a square matrix of a size."""
    return _matrix(call.size(0), call.size(0))


def filled_shape(call: Call) -> Type:
    """Return a matrix of two sizes, or a vector of one."""
    return _matrix(call.size(0), call.size(1) if len(call.sizes) == 2 else ONE)


def commutation_shape(call: Call) -> Type:
    """Return the square matrix that acts on the entries of a matrix."""
    entries = call.shapes.times(call.size(0), call.size(1), call.span)
    return _matrix(entries, entries)


def kron_shape(call: Call) -> Type:
    """Return the shape of a Kronecker product."""
    left, right = call.types
    times = call.shapes.times
    return _matrix(times(left.rows, right.rows, call.span), times(left.cols, right.cols, call.span))


def vec_shape(call: Call) -> Type:
    """Return a vector of all entries."""
    return _matrix(call.entries(0), ONE)


def diag_shape(call: Call) -> Type:
    """Return a diagonal matrix of a vector, or the diagonal of a square matrix."""
    argument = call.types[0]
    if call.shapes.is_vector(argument):
        return _matrix(argument.rows, argument.rows)
    if call.shapes.is_square(argument):
        return _matrix(argument.rows, ONE)
    fail(call.spans[0], f"diag needs a vector or a square matrix. Got {call.shapes.show(argument)}.")


def hadamard_shape(call: Call) -> Type:
    """Return the shape of two matrices that must share it."""
    left, right = call.types
    if not call.shapes.same_shape(left, right):
        show = call.shapes.show
        fail(call.spans[1], f"hadamard needs two matrices of the same shape. Got {show(left)} and {show(right)}.")
    return left


def same_shapes_scalar(call: Call) -> Type:
    """Return a number, of two vectors of one length or two matrices of one shape."""
    left, right = call.types
    if not call.shapes.same_shape(left, right):
        vectors = call.shapes.is_vector(left) and call.shapes.is_vector(right)
        what = "vectors of the same length" if vectors else "matrices of the same shape"
        show = call.shapes.show
        fail(call.spans[1], f"{call.name} needs two {what}. Got {show(left)} and {show(right)}.")
    return SCALAR


def khatri_rao_shape(call: Call) -> Type:
    """Return the shape of the columns' Kronecker products, side by side."""
    left, right = call.types
    if not call.shapes.same(left.cols, right.cols):
        show = call.shapes.show
        fail(call.spans[1], f"{call.name} needs as many columns on both sides. Got {show(left)} and {show(right)}.")
    return _matrix(call.shapes.times(left.rows, right.rows, call.span), left.cols)


def turned_shape(call: Call) -> Type:
    """Return the shape of the transpose."""
    return _matrix(call.types[0].cols, call.types[0].rows)


def statement_shape(call: Call) -> Type:
    """Return the type of a statement."""
    return BOOLEAN


def extreme_shape(call: Call) -> Type:
    """Return a number, of one matrix or of several numbers."""
    if len(call.types) > 1:
        for type_, span in zip(call.types, call.spans, strict=True):
            if not call.shapes.is_scalar(type_):
                fail(span, f"{call.name} takes one matrix, or scalars only. Got {call.shapes.show(type_)}.")
    return SCALAR


def gradient_shape(call: Call) -> Type:
    """Return the type of the variable."""
    return call.types[1]


def jacobian_shape(call: Call) -> Type:
    """Return a matrix with a row for each entry of the value and a column for each of the variable."""
    return _matrix(call.entries(0), call.entries(1))
