"""The twin of `softmax`, exp(x)/sum(exp(x)) of every column: its values in floats and in balls, and its derivative.

With p the softmax of a column, its Jacobian is diag(p) - p p'. By Gershgorin's discs, whose row i reaches at most to
2 p_i (1 - p_i) <= 1/2, its norm is at most 1/2, so that columns within r of others have softmaxes within r/2.
"""

from __future__ import annotations

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives.cotangents import Cotangent, minus, plus, times_entries, times_left
from ntk_deq.evaluation.functions.entrywise import entries_of, near_balls
from ntk_deq.evaluation.quantity import Matrix


def tensor_softmax(a: Tensor) -> Tensor:
    """Return the softmax of every column, of one matrix or of each of a batch."""
    return torch.softmax(a, dim=-2)


def softmax_ball(a: ct.Ball) -> ct.Ball:
    """Return the ball of the softmax of every column.

    Raises:
        LimitError: It has too many entries.

    Example:
        >>> found = softmax_ball(ct.Ball(torch.zeros(2, 1, dtype=torch.float64), 1e-3))
        >>> found.centre.tolist(), 4.9e-4 < found.radius < 5.1e-4
        ([[0.5], [0.5]], True)
    """
    rows, cols = a.shape
    if isinstance(a, PreciseMatrix):
        return as_ball(from_rows(rows, cols, _columns(list(a.flat), cols), a.reason))
    dense: ct.Ball = dense_form(a)
    if not dense.is_finite:
        return dense
    found = near_balls(_columns([arb(entry) for entry in entries_of(dense)], cols), dense)
    return ct.Ball(found.centre, add_up(found.radius, dense.radius / 2), found.reason)


def _columns(entries: list[arb], cols: int) -> list[arb]:
    """Return the softmax of every column of a matrix that is given row after row."""
    found: list[arb] = [arb(0)] * len(entries)
    for col in range(cols):
        column = entries[col::cols]
        top = max((entry.mid() for entry in column), key=float)
        powers = [(entry - top).exp() for entry in column]
        total = sum(powers, arb(0))
        found[col::cols] = [power / total for power in powers]
    return found


def softmax_matrix(matrix: Matrix) -> Matrix:
    """Return the softmax of every column, with its magnitude."""
    found = softmax_ball(matrix.ball)
    return Matrix(found, ar.magnitude(ct.frobenius(found)))


def pulled(value: Matrix, cot: Cotangent, dtype: torch.dtype, device: torch.device) -> Cotangent:
    """Return P .* C - P .* (1 1' (P .* C)) for each cotangent C of the softmax P of a matrix."""
    rows, cols = value.ball.shape
    ones = Matrix(ct.Ball(torch.ones(rows, rows, dtype=dtype, device=device)), float(rows))
    weighed = times_entries(cot, value)
    return plus(weighed, minus(times_entries(times_left(ones, weighed, (rows, cols)), value)))
