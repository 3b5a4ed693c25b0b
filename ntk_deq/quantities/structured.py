"""The tangent kernel as sums of Hadamard products of Gram matrices: no Jacobian is ever formed.

Sample n's slope in a parameter is a sum of outer products l_jn r_jn'. The inner product of two samples' slopes then is
a sum over pairs of terms, and over all samples the block is the sum over j and k of

    c_j c_k (L_j L_k') .* (R_j R_k').

A parameter that occurs twice (tied layers, or once transposed) has two terms, and so has one behind another matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.quantities.tangent_kernel import KernelSolver, gram
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.systems.parameter_slopes import ParameterSlope, Shared

Terms = Mapping[str, tuple[ParameterSlope, ...]]
Pair = tuple[Tensor, Tensor]


def structured_blocks(
    model: EquilibriumModel,
    X1: Tensor,
    X2: Tensor | None,
    names: Sequence[str],
    solver: KernelSolver,
    *,
    traced: bool = False,
) -> dict[str, Tensor] | None:
    """Return the kernel's block of each parameter from the factors of the slopes; None: the model knows none.

    Cost: the fixed points (a few N m^2 products each, per iteration) and one N^2 m product for each different pair of
    factors. Memory: a product that several terms share is formed once, and let go after its last use.

    Args:
        model: The model.
        X1: Inputs.
        X2: Other inputs, or None for X1 again.
        names: Parameters wanted, in order.
        solver: Solves the equilibria and adjoints and keeps a record.
        traced: Whether the sum over outputs is wanted, and not the kernel of all pairs of them.

    Raises:
        UnstructuredError: A slope is no sum of few outer products.
    """
    left = _terms(model, X1, solver, "X1")
    right = left if X2 is None else _terms(model, X2, solver, "X2")
    if left is None or right is None:
        return None
    outputs = range(len(left))
    pairs = [(i, j) for i in outputs for j in outputs if (i == j if traced else X2 is not None or i <= j)]
    work = {name: [_products(left[i][name], right[j][name], X2 is None and i == j) for i, j in pairs] for name in names}
    grams = _Grams.of(part for found in work.values() for parts in found for part in parts)
    like = model.initial_state(X1)
    shape = (like.shape[0], like.shape[0] if X2 is None else model.initial_state(X2).shape[0])
    blocks = {}
    for name in names:
        found = [grams.total(parts, like.new_zeros(shape)) for parts in work.pop(name)]
        blocks[name] = found[0] if len(found) == 1 else _assembled(pairs, found, len(left), traced=traced)
    return blocks


def _terms(model: EquilibriumModel, X: Tensor, solver: KernelSolver, what: str) -> list[Terms] | None:
    """Return the slopes of each output."""
    Z, found = solver.equilibrium(X, what), list[Terms]()
    for output in range(model.outputs or 1):
        shown = what if model.outputs in (None, 1) else f"{what}, output {output}"
        terms = model.tangent_factors(X, Z, solver.adjoint(X, Z, shown, output), output)
        if terms is None:
            return None
        found.append(terms)
    return found


def _assembled(pairs: Sequence[tuple[int, int]], found: list[Tensor], outputs: int, *, traced: bool) -> Tensor:
    """Return the matrix of all outputs, the first output's samples first, or the sum over them."""
    if traced:
        return torch.stack(found).sum(0)
    known = dict(zip(pairs, found, strict=True))
    rows = [
        torch.cat([known[i, j] if (i, j) in known else known[j, i].mT for j in range(outputs)], dim=1)
        for i in range(outputs)
    ]
    return torch.cat(rows)


@dataclass(frozen=True, eq=False)
class _Part:
    """A summand `coefficient` times the entrywise product of the pairs' Gram matrices; `weights`, if any, times them.

    Attributes:
        coefficient: A number.
        pairs: Of factors.
        mirrored: Whether the transpose is a summand too.
    """

    coefficient: Tensor | float
    pairs: tuple[Pair, ...]
    mirrored: bool = False


def _products(left: Sequence[ParameterSlope], right: Sequence[ParameterSlope], symmetric: bool) -> list[_Part]:
    """Return the summands of a block; of two terms of a symmetric one, both orders at once."""
    parts = []
    for j, one in enumerate(left):
        for k, other in enumerate(right):
            if not symmetric or j <= k:
                parts.append(_product(one, other, mirrored=symmetric and j < k))
    return parts


def _product(one: ParameterSlope, other: ParameterSlope, *, mirrored: bool) -> _Part:
    if isinstance(one, Shared) and isinstance(other, Shared):
        size = (one.direction * other.direction).sum()
        return _Part(size, ((one.weights[:, None], other.weights[:, None]),), mirrored)
    if isinstance(one, Shared):
        return _Part(1.0, ((one.weights[:, None], other.inner(one.direction).numbers()[:, None]),), mirrored)
    if isinstance(other, Shared):
        return _Part(1.0, ((one.inner(other.direction).numbers()[:, None], other.weights[:, None]),), mirrored)
    pairs = []
    for a, b in ((one.left, other.left), (one.right, other.right)):
        if a is not None or b is not None:
            # Where one has ones and the other a factor of its own, that has one column.
            pairs.append((_or_ones(a, b), _or_ones(b, a)))
    return _Part(one.coefficient * other.coefficient, tuple(pairs), mirrored)


def _or_ones(factor: Tensor | None, like: Tensor | None) -> Tensor:
    if factor is not None:
        return factor
    assert like is not None  # one of two is given
    return like.new_ones(()).expand(1, 1)


@dataclass
class _Grams:
    """Gram matrices of pairs of factors, each formed on its first use and let go after its last.

    Attributes:
        uses: How often each pair is still needed.
    """

    uses: Counter[tuple[int, int]]
    _kept: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Iterable[_Part]) -> _Grams:
        """Count the pairs of all summands."""
        return cls(Counter(_key(pair) for part in parts for pair in part.pairs))

    def total(self, parts: Sequence[_Part], like: Float[Tensor, "N1 N2"]) -> Tensor:
        """Return the sum of all summands.

        Args:
            parts: The summands.
            like: Zeros in the shape of the result.
        """
        total: Tensor | None = None
        for part in parts:
            product = self._product(part, like)
            if part.mirrored:
                product = product + product.mT
            total = product if total is None else total.add_(product)
        return like if total is None else total

    def _product(self, part: _Part, like: Tensor) -> Tensor:
        """Return a summand as a tensor of its own."""
        if not part.pairs:
            return torch.ones_like(like).mul_(part.coefficient)
        product: Tensor | None = None
        for pair in part.pairs:
            matrix, shared = self._gram(pair)
            if product is not None:
                product = product.mul_(matrix)
            elif shared or matrix.shape != like.shape:
                product = matrix.expand_as(like).clone()
            else:
                product = matrix
        assert product is not None  # there is a pair
        plain = isinstance(part.coefficient, float) and part.coefficient == 1
        return product if plain else product.mul_(part.coefficient)

    def _gram(self, pair: Pair) -> tuple[Tensor, bool]:
        """Return a Gram matrix, and whether it is needed again."""
        key, (a, b) = _key(pair), pair
        if key in self._kept:
            matrix = self._kept.pop(key)
        else:
            first, second = (a, b) if id(a) == key[0] else (b, a)
            matrix = gram(first) if a is b else gram(first, second)
        self.uses[key] -= 1
        again = self.uses[key] > 0
        if again:
            self._kept[key] = matrix
        return (matrix if id(a) == key[0] else matrix.mT), again


def _key(pair: Pair) -> tuple[int, int]:
    """Name a pair, whichever comes first: one Gram matrix is the other's transpose."""
    a, b = sorted(map(id, pair))
    return a, b
