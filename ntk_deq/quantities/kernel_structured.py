"""The tangent kernel as a sum of Hadamard products of Gram matrices: no Jacobian is ever formed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from ntk_deq.models.base import EquilibriumModel, HadamardTerm
from ntk_deq.quantities.gram import gram
from ntk_deq.quantities.kernel_solves import KernelSolver

Terms = dict[str, tuple[HadamardTerm, ...]]
Pair = tuple[Tensor, Tensor | None]
Product = tuple[float, list[Pair]]


def structured_blocks(
    model: EquilibriumModel, X1: Tensor, X2: Tensor | None, names: Sequence[str], solver: KernelSolver
) -> dict[str, Tensor]:
    """Return the kernel's block of each parameter from the model's own Hadamard terms.

        H_theta = sum over terms of  coefficient * (F1 F1') .* (F2 F2') .* ...

    Cost: the fixed points (a few N m^2 products each, per iteration) and one N^2 m product for each different factor.
    Memory: a factor that several terms share is multiplied once; a Gram matrix is multiplied into in place on its last
    use, and factors are let go block by block.

    Args:
        model: Any model with `tangent_factors`.
        X1: Inputs, N1 x d.
        X2: Other inputs, N2 x d, or None for X1 again.
        names: Parameters wanted, in order.
        solver: Solves the equilibria and adjoints and keeps a record.
    """
    terms1 = _terms(model, X1, names, solver, "X1")
    terms2 = {} if X2 is None else _terms(model, X2, names, solver, "X2")
    products = {name: _products(terms1.pop(name), terms2.pop(name, None)) for name in names}
    return _multiply_out(products)


def _terms(model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str) -> Terms:
    Z = solver.equilibrium(X, what)
    terms = model.tangent_factors(X, Z, solver.adjoint(X, Z, what))
    return {name: terms[name] for name in names}


def _products(left: Sequence[HadamardTerm], right: Sequence[HadamardTerm] | None) -> list[Product]:
    if right is None:
        return [(term.coefficient, [(factor, None) for factor in term.factors]) for term in left]
    return [
        (term.coefficient, list(zip(term.factors, other.factors, strict=True)))
        for term, other in zip(left, right, strict=True)
    ]


def _multiply_out(products: dict[str, list[Product]]) -> dict[str, Tensor]:
    """Work out every block; empties the mapping as it goes, so that factors are freed as early as possible."""
    uses = Counter(_key(pair) for terms in products.values() for _, pairs in terms for pair in pairs)
    shared: dict[tuple[int, int], Tensor] = {}
    blocks: dict[str, Tensor] = {}
    for name in list(products):
        first, *others = (_hadamard(coefficient, pairs, uses, shared) for coefficient, pairs in products.pop(name))
        for product in others:
            first.add_(product)
        blocks[name] = first
    return blocks


def _key(pair: Pair) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _hadamard(
    coefficient: float, pairs: Sequence[Pair], uses: Counter[tuple[int, int]], shared: dict[tuple[int, int], Tensor]
) -> Tensor:
    """Return the coefficient times the entrywise product of the pairs' Gram matrices, as a tensor of its own."""
    first, *others = pairs
    product = _gram(first, uses, shared)
    if _key(first) in shared:
        product = product.clone()
    for pair in others:
        product.mul_(_gram(pair, uses, shared))
    return product if coefficient == 1 else product.mul_(coefficient)


def _gram(pair: Pair, uses: Counter[tuple[int, int]], shared: dict[tuple[int, int], Tensor]) -> Tensor:
    """Return the pair's Gram matrix, worked out on its first use and kept in `shared` until its last."""
    key = _key(pair)
    matrix = shared.pop(key) if key in shared else gram(*pair)
    uses[key] -= 1
    if uses[key]:
        shared[key] = matrix
    return matrix
