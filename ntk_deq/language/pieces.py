"""Pieces of matrices and matrices of pieces: entries, rows, columns, blocks, literals and what they may be made of.

Indices count from 1, like steps of a sum in print, and are made of whole numbers and size letters with + - and *.
Whether a piece exists is settled here wherever the ranges of the size letters settle it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ntk_deq.language.calls import Call, Parameter
from ntk_deq.language.record import Degree, Function, any_of, first, with_zero
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import Sign, Span
from ntk_deq.language.types import ONE, SCALAR, Size, Sort, Type

_P = Parameter


def _entry_shape(call: Call) -> Type:
    """Return a number: entry i of a vector, or entry (i, j)."""
    matrix = call.types[0]
    if len(call.types) == 2:
        _need_vector(call, "v{i}", "A{i, j} for an entry of a matrix, A{i, :} for a row")
        _inside(call, 1, 1, matrix.rows, "entry")
        return SCALAR
    _inside(call, 1, 1, matrix.rows, "row")
    _inside(call, 2, 2, matrix.cols, "column")
    return SCALAR


def _segment_shape(call: Call) -> Type:
    """Return a vector of some entries of a vector."""
    _need_vector(call, "v{i..p}", "A{i..p, :} for rows of a matrix")
    return Type(Sort.MATRIX, _inside(call, 1, 2, call.types[0].rows, "entry"), ONE)


def _rows_shape(call: Call) -> Type:
    """Return some rows."""
    return Type(Sort.MATRIX, _inside(call, 1, 2, call.types[0].rows, "row"), call.types[0].cols)


def _columns_shape(call: Call) -> Type:
    """Return some columns."""
    return Type(Sort.MATRIX, call.types[0].rows, _inside(call, 1, 2, call.types[0].cols, "column"))


def _block_shape(call: Call) -> Type:
    """Return a block."""
    rows = _inside(call, 1, 2, call.types[0].rows, "row")
    return Type(Sort.MATRIX, rows, _inside(call, 3, 4, call.types[0].cols, "column"))


def _need_vector(call: Call, form: str, hint: str) -> None:
    if not call.shapes.is_vector(call.types[0]):
        fail(call.spans[0], f"{form} needs a vector. Got {call.shapes.show(call.types[0])}.", f"write {hint}")


def _inside(call: Call, low: int, high: int, most: Size, what: str) -> Size:
    """Return how many indices a range has, all of which must be there.

    Args:
        call: The call.
        low: The argument that is the first index.
        high: The argument that is the last one.
        most: How many there are.
        what: What they count.
    """
    first, last = call.size(low), call.size(high)
    known = call.shapes.least(first, 1)
    if isinstance(known, Mapping):
        fail(call.spans[low], f"indices count from 1. Got {_shown(first, known)}.")
    known = call.shapes.least(most - last, 0)
    if isinstance(known, Mapping):
        there = f" where {_where(known)}" if known else ""
        message = f"{what} {last} does not exist{there}: {call.shapes.show(call.types[0])} has {most} of them."
        fail(call.spans[high], message, _start(known))
    known = call.shapes.least(last - first, 0)
    if isinstance(known, Mapping):
        there = f" where {_where(known)}" if known else ""
        fail(Span(call.spans[low].start, call.spans[high].stop), f"the range {first}..{last} is empty{there}.")
    return last - first + 1


def _where(values: Mapping[str, int]) -> str:
    return " and ".join(f"{letter} = {value}" for letter, value in values.items())


def _shown(size: Size, values: Mapping[str, int]) -> str:
    return f"{size}, which is {size.evaluate(values)} where {_where(values)}" if values else str(size)


def _start(values: Mapping[str, int]) -> str | None:
    letters = [letter for letter in values]
    return f"let the sizes of {', '.join(letters)} start higher under `sizes`" if letters else None


def _beside_shape(call: Call) -> Type:
    """Return the shape of blocks side by side."""
    return _joined(call, "side by side", "rows", along_rows=False)


def _above_shape(call: Call) -> Type:
    """Return the shape of blocks one above the other."""
    return _joined(call, "one above the other", "columns", along_rows=True)


def _joined(call: Call, how: str, what: str, *, along_rows: bool) -> Type:
    blocks = [_block(type_) for type_ in call.types]
    total = blocks[0].rows if along_rows else blocks[0].cols
    across = blocks[0].cols if along_rows else blocks[0].rows
    for block, type_, span in zip(blocks[1:], call.types[1:], call.spans[1:], strict=True):
        other = block.cols if along_rows else block.rows
        if not call.shapes.same(across, other):
            show = call.shapes.show
            fail(span, f"cannot put {show(call.types[0])} and {show(type_)} {how}: {what} {across} and {other} differ.")
        total = call.shapes.plus(total, block.rows if along_rows else block.cols, call.span)
    return Type(Sort.MATRIX, total, across) if along_rows else Type(Sort.MATRIX, across, total)


def _block(type_: Type) -> Type:
    """Return the shape of a block; a number is one entry."""
    return type_ if type_.sort is Sort.MATRIX else Type(Sort.MATRIX)


def _diagonal_shape(call: Call) -> Type:
    """Return the shape of blocks along a diagonal."""
    blocks = [_block(type_) for type_ in call.types]
    rows, cols = blocks[0].rows, blocks[0].cols
    for block in blocks[1:]:
        rows, cols = call.shapes.plus(rows, block.rows, call.span), call.shapes.plus(cols, block.cols, call.span)
    return Type(Sort.MATRIX, rows, cols)


_piece = partial(
    Function, group="Pieces", parameters=(_P.MATRIX, _P.INDEX, _P.INDEX), degree=Degree.LINEAR, values=first
)
_together = partial(Function, group="Pieces", parameters=(_P.VALUE,), degree=Degree.LINEAR, repeats=True, values=any_of)

PIECES = (
    _piece(
        name=Sign.ENTRY,
        summary="Entry of a matrix, in row i and column j counted from 1; `v{i}` of a vector.",
        result=_entry_shape,
        form="A{i, j}",
        optional=1,
    ),
    _piece(name=Sign.SEGMENT, summary="The entries i to p of a vector.", result=_segment_shape, form="v{i..p}"),
    _piece(
        name=Sign.ROWS,
        summary="The rows i to p of a matrix; `A{i, :}` is one row.",
        result=_rows_shape,
        form="A{i..p, :}",
    ),
    _piece(
        name=Sign.COLUMNS,
        summary="The columns j to q of a matrix; `A{:, j}` is one column.",
        result=_columns_shape,
        form="A{:, j..q}",
    ),
    _piece(
        name=Sign.BLOCK,
        parameters=(_P.MATRIX, _P.INDEX, _P.INDEX, _P.INDEX, _P.INDEX),
        summary="The block of rows i to p and columns j to q.",
        result=_block_shape,
        form="A{i..p, j..q}",
    ),
    _together(
        name=Sign.ROW,
        summary="Numbers or matrices side by side; a number is one entry.",
        result=_beside_shape,
        form="[A, B]",
    ),
    _together(
        name=Sign.STACK,
        summary="One above the other; with both signs `[A, B; C, D]` is a block matrix and `[1, 2; 3, 4]` a literal.",
        result=_above_shape,
        form="[A; B]",
    ),
    _together(
        name="blockdiag",
        summary="Matrices along the diagonal, zeros elsewhere.",
        result=_diagonal_shape,
        turns=True,
        values=lambda args: with_zero([any_of(args)]),
    ),
)
"""Functions that take matrices apart and put them together."""
