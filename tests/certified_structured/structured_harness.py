"""Matrices known three ways: by structure, in dense balls, and exactly; every operation is applied to all three."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from flint import arb, arb_mat

# The families of matrices and the truth in 3000 bits are those of the tests of dense balls.
sys.path.append(str(Path(__file__).parents[1] / "certified"))

from certified_harness import BITS, FAMILIES, blurred, eigenvalue_violations, matrix, truth, violates

from ntk_deq import certified as ct
from ntk_deq.certified import Ball
from ntk_deq.certified.structured import densified, lazy_above

__all__ = [
    "BITS",
    "FAMILIES",
    "MODEST",
    "Known",
    "draws",
    "eigenvalue_violations",
    "single_thread",
    "structured",
    "truth",
]

MODEST = ("gaussian", "whole numbers", "graded entries", "rank one", "powers of two", "nonnegative", "zero", "monomial")
NEVER = 10**9


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for matrices of a few entries: threads that wait for each other cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Known:
    """A matrix that is kept by structure where there is one, the same in dense balls, and the truth."""

    lazy: Ball
    dense: Ball
    exact: arb_mat

    @property
    def shape(self) -> tuple[int, int]:
        return self.exact.nrows(), self.exact.ncols()

    def is_sound(self) -> bool:
        """Return whether the truth is in both balls, which have its shape."""
        formed = densified(self.lazy)
        assert formed.shape == self.dense.shape == self.shape
        assert tuple(self.lazy.shape) == self.shape
        return not violates(self.exact, formed) and not violates(self.exact, self.dense)


def leaf(family: str, rows: int, cols: int, generator: torch.Generator, *, blur: bool) -> Known:
    tensor = matrix(family, rows, cols, generator)
    ball = blurred(tensor, generator) if blur else Ball(tensor)
    return Known(ball, ball, truth(tensor))


def _apply(operation: Callable[..., Ball], exact: arb_mat, *args: Known) -> Known:
    with lazy_above(0):
        lazy = operation(*(arg.lazy for arg in args))
    with lazy_above(NEVER):
        dense = operation(*(arg.dense for arg in args))
    return Known(lazy, dense, exact)


def _entries(rows: int, cols: int, entry: Callable[[int, int], arb]) -> arb_mat:
    return arb_mat(rows, cols, [entry(i, j) for i in range(rows) for j in range(cols)])


def identity(n: int) -> Known:
    return _apply(lambda: ct.identity(n), _entries(n, n, lambda i, j: arb(int(i == j))))


def diag(a: Known) -> Known:
    n = a.shape[0]
    if a.shape[1] == 1:
        return _apply(ct.diag, _entries(n, n, lambda i, j: a.exact[i, 0] if i == j else arb(0)), a)
    return _apply(ct.diag, _entries(n, 1, lambda i, _: a.exact[i, i]), a)


def kron(a: Known, b: Known) -> Known:
    p, q = b.shape
    rows, cols = a.shape[0] * p, a.shape[1] * q
    exact = _entries(rows, cols, lambda i, j: a.exact[i // p, j // q] * b.exact[i % p, j % q])
    return _apply(ct.kron, exact, a, b)


def matmul(a: Known, b: Known) -> Known:
    return _apply(ct.matmul, a.exact * b.exact, a, b)


def add(a: Known, b: Known) -> Known:
    return _apply(ct.add, a.exact + b.exact, a, b)


def subtract(a: Known, b: Known) -> Known:
    return _apply(ct.subtract, a.exact - b.exact, a, b)


def hadamard(a: Known, b: Known) -> Known:
    return _apply(ct.hadamard, _entries(*a.shape, lambda i, j: a.exact[i, j] * b.exact[i, j]), a, b)


def transpose(a: Known) -> Known:
    return _apply(ct.transpose, a.exact.transpose(), a)


def scale(factor: arb, inside: arb, a: Known) -> Known:
    return _apply(lambda ball: ct.scale(factor, ball), inside * a.exact, a)


def inverse(a: Known) -> Known:
    return _apply(ct.inverse, a.exact.inv(), a)


def negate(a: Known) -> Known:
    return _apply(ct.negate, -a.exact, a)


def draws(seed: int, families=FAMILIES, blurs=(False, True)):
    """Yield a function that draws leaves, for every family, exact and with a radius."""
    generator = torch.Generator().manual_seed(seed)
    for family in families:
        for blur in blurs:
            yield lambda rows, cols, family=family, blur=blur: leaf(family, rows, cols, generator, blur=blur)


def structured(draw: Callable[[int, int], Known], n: int = 3, m: int = 4) -> dict[str, Known]:
    """Return one matrix of order n m for each structure."""
    A, B, d = draw(m, m), draw(n, n), draw(n * m, 1)
    return {
        "diagonal": diag(d),
        "one for each sample": kron(A, identity(n)),
        "one after another": kron(identity(m), B),
        "blocks": matmul(diag(d), kron(A, identity(n))),
        "blocks in a row": matmul(kron(identity(m), B), diag(d)),
        "kronecker": kron(A, B),
        "chain": matmul(kron(identity(m), B), matmul(diag(d), kron(A, identity(n)))),
        "identity": identity(n * m),
        "dense": draw(n * m, n * m),
    }
