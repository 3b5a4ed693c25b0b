"""The result of a tangent-kernel computation, how its equilibria were found, and its structure.

The fixed points behind it are solved with one set of options and written down. Gram matrices of feature matrices are
exactly symmetric where they should be.

Sums of Hadamard products of Gram matrices, so that no Jacobian is ever formed: sample n's slope in a parameter is a sum
of outer products l_jn r_jn'. The inner product of two samples' slopes then is a sum over pairs of terms, and over all
samples the block is the sum over j and k of

    c_j c_k (L_j L_k') .* (R_j R_k').

A parameter that occurs twice (tied layers, or once transposed) has two terms, and so has one behind another matrix.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium import Equilibrium, Solver, solve_fixed_point
from ntk_deq.equilibrium.result import html_table, one_line
from ntk_deq.equilibrium.starts import near_affine_fixed_point, near_fixed_point
from ntk_deq.errors import EquilibriumError
from ntk_deq.quantities.spectra import Measured, Spectrum, condition_number, lambda_max, lambda_min, sigma_min, spectrum
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.systems.parameter_slopes import ParameterSlope, Shared


class KernelMethod(StrEnum):
    """How a tangent kernel is worked out."""

    STRUCTURED = "structured"
    ADJOINT = "adjoint"
    JACOBIAN = "jacobian"
    AUTODIFF = "autodiff"


@dataclass(frozen=True)
class SolveRecord:
    """How one of the fixed points behind a kernel was found.

    Attributes:
        what: `equilibrium of X1`, `adjoint of X1`, and likewise for X2.
        converged: Whether every sample met its tolerance.
        steps: Evaluations of the map for the start, and from there the iterations of the slowest sample.
        residual: The largest residual of a sample.
    """

    what: str
    converged: bool
    steps: int
    residual: float


@dataclass(frozen=True, eq=False, repr=False)
class TangentKernel:
    """The tangent-kernel Gram matrix of a model between two sets of samples.

        H[i, j] = sum over parameters theta of  d yhat(x_i)/d theta . d yhat(x'_j)/d theta

    Attributes:
        matrix: H, N1 x N2.
        blocks: The summand of each parameter.
        symmetric: Whether both sets are the same; matrix and blocks then equal their transposes exactly.
        method: How it was worked out.
        model: The model's name.
        solves: The fixed points that were solved on the way.
        error: What the tolerance of those leaves in the matrix, in the Frobenius norm: an estimate.
        outputs: Number of outputs of which the matrix holds all pairs; None: there is one, or they are summed over.
        reason: Why another method than `structured` was taken, if it was asked for.
    """

    normalisation: ClassVar[str] = "sum over parameters of J J', no division by width or outputs"

    matrix: Float[Tensor, "N1 N2"]
    blocks: Mapping[str, Float[Tensor, "N1 N2"]]
    symmetric: bool
    method: KernelMethod
    model: str
    solves: tuple[SolveRecord, ...]
    error: float = 0.0
    outputs: int | None = None
    reason: str = ""

    @property
    def spectrum(self) -> Spectrum:
        """Eigenvalues; an ArgumentError where the kernel is not symmetric."""
        return spectrum(self)

    @property
    def lambda_min(self) -> Measured:
        """Smallest eigenvalue; an ArgumentError where the kernel is not symmetric."""
        return lambda_min(self)

    @property
    def lambda_max(self) -> Measured:
        """Largest eigenvalue; an ArgumentError where the kernel is not symmetric."""
        return lambda_max(self)

    @property
    def sigma_min(self) -> Measured:
        """Smallest singular value, also of a kernel between two sets."""
        return sigma_min(self)

    @property
    def condition_number(self) -> Measured:
        """Largest over smallest singular value; infinite where the kernel cannot be told from a singular matrix."""
        return condition_number(self)

    def _facts(self) -> dict[str, object]:
        rows, columns = self.matrix.shape
        size = self.matrix.trace() if self.symmetric else self.matrix.abs().max()
        outputs = {} if self.outputs is None else {"outputs": self.outputs}
        return {
            "model": self.model,
            "shape": f"{rows}x{columns}",
            **outputs,
            "parameters": "+".join(self.blocks),
            "method": f"{self.method.value} ({self.reason})" if self.reason else self.method.value,
            "symmetric": self.symmetric,
            "trace" if self.symmetric else "max": f"{float(size):.6g}",
            "dtype": str(self.matrix.dtype).removeprefix("torch."),
            "device": self.matrix.device,
            "residual": f"{max((solve.residual for solve in self.solves), default=0.0):.1e}",
        }

    def __repr__(self) -> str:
        return one_line("TangentKernel", self._facts())

    def _repr_html_(self) -> str:
        solves = {
            solve.what: f"{'converged' if solve.converged else 'not converged'} after {solve.steps} steps, "
            f"residual {solve.residual:.1e}"
            for solve in self.solves
        }
        return html_table("Tangent kernel", {**self._facts(), "normalisation": self.normalisation, **solves})


def gram(F1: Float[Tensor, "N1 p"], F2: Float[Tensor, "N2 p"] | None = None) -> Float[Tensor, "N1 N2"]:
    """Return F1 F2', or F1 F1' with rounding that is the same on both sides of the diagonal.

    A library product F1 F1' may differ from its transpose in the last bits; eigenvalue routines read one triangle only,
    so that the mean of both is taken here once, rather than wherever the matrix is used.

    Example:
        >>> import torch
        >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tensor([[5., 2.],
                [2., 1.]])
    """
    if F2 is not None:
        return F1 @ F2.T
    product = F1 @ F1.T
    return (product + product.T).mul_(0.5)


_MOST_FURTHER = 32  # steps, where a map contracts slowly
# Multiplications in a step below which single precision saves less than its extra calls cost.
_WORTH_CASTING = 2**20


@dataclass(frozen=True)
class KernelSolver:
    """Solves equilibria and adjoints of one model and keeps a record of each.

    Attributes:
        model: The model.
        solver, rtol, atol, max_steps: As in `solve_fixed_point`.
        records: What was solved so far.
    """

    model: EquilibriumModel
    solver: str | Solver
    rtol: float | None
    atol: float | None
    max_steps: int
    records: list[SolveRecord] = field(default_factory=list)

    def equilibrium(self, X: Tensor, what: str) -> Tensor:
        """Return the features of X; an EquilibriumError where a sample has none."""
        start, made, step = self.model.initial_state(X), 0, self.model.step_at(X)
        if self._casts(start):
            start, made = self._single_equilibrium(X, start)
        if self._starts:
            start, more = near_fixed_point(step, start, max_steps=self.max_steps - made)
            made += more
        return self._solve(f"equilibrium of {what}", step, start, made)

    def adjoint(self, X: Tensor, Z: Tensor, what: str, output: int = 0) -> Tensor:
        """Return the adjoint of one output at the features Z; an EquilibriumError where a sample has none."""
        start, made, step = Z.new_zeros(()).expand_as(Z), 0, self.model.adjoint_step_at(Z, X, None, output)
        if self._casts(start):
            single = self.model.adjoint_step_at(Z.float(), X.float(), self._single(), output)
            start, made = near_affine_fixed_point(step, single, start, max_steps=self.max_steps)
            del single  # a map may hold as much memory as the solve itself
        elif self._starts:
            start, made = near_fixed_point(step, start, max_steps=self.max_steps)
        return self._solve(f"adjoint of {what}", step, start, made)

    def note(self, what: str, found: Equilibrium, before: int = 0) -> None:
        """Write down how a fixed point was found, `before` steps having been made for its start."""
        self.records.append(
            SolveRecord(
                what=what,
                converged=found.all_converged,
                steps=before + int(found.steps.max()),
                residual=float(found.residual.max()),
            )
        )

    @property
    def _starts(self) -> bool:
        """Whether plain steps may look for a start: not where another solver was asked for, since they may diverge."""
        return self.solver == "picard"

    def _casts(self, start: Tensor) -> bool:
        """Whether single precision may look for a start: it must pay, and only numbers may stay in double precision."""
        worth = start.numel() * start.shape[-1] >= _WORTH_CASTING
        return self._starts and worth and self.model.single_precision and start.dtype == torch.float64

    def _single_equilibrium(self, X: Tensor, initial: Tensor) -> tuple[Tensor, int]:
        step = self.model.step_at(X.float(), self._single())
        start, made = near_fixed_point(step, initial.float(), max_steps=self.max_steps)
        return start.to(X.dtype), made

    def _single(self) -> dict[str, Tensor]:
        return {name: value.float() for name, value in self.model.parameters().items()}

    @cached_property
    def _further(self) -> int:
        """Plain steps after a start was found: they make an error a twentieth."""
        if not self._starts or not self._contraction < 1:
            return 0
        return min(_MOST_FURTHER, math.ceil(3 / (1 - self._contraction)))

    @cached_property
    def _contraction(self) -> float:
        return float(self.model.contraction_bound())

    def _solve(self, what: str, step: Callable[[Tensor], Tensor], start: Tensor, made: int) -> Tensor:
        """Solve from `start`, for which `made` steps were made already."""
        # The start is good for all entries together. Small ones take some more steps, of which each with a look at its
        # residual takes the time of several without.
        for _ in range(min(self._further, self.max_steps - made)):
            start, made = step(start), made + 1
        found = solve_fixed_point(
            step,
            start,
            solver=self.solver,
            rtol=self.rtol,
            atol=self.atol,
            max_steps=self.max_steps - made,
            contraction=self._contraction,
            raise_on_failure=False,
        )
        if not found.all_converged:
            raise EquilibriumError(
                f"No {what} found with the solver {found.solver}.\n{found.describe_failures()}", found
            )
        self.note(what, found, made)
        return found.value


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
    grams = _Grams(part for found in work.values() for parts in found for part in parts)
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
    return [
        _product(one, other, mirrored=symmetric and j < k)
        for j, one in enumerate(left)
        for k, other in enumerate(right)
        if not symmetric or j <= k
    ]


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
        given = b if a is None else a
        if given is not None:
            # Where one has ones and the other a factor of its own, that has one column.
            ones = given.new_ones(()).expand(1, 1)
            pairs.append((ones if a is None else a, ones if b is None else b))
    return _Part(one.coefficient * other.coefficient, tuple(pairs), mirrored)


class _Grams:
    """Gram matrices of pairs of factors, each formed on its first use and let go after its last."""

    def __init__(self, parts: Iterable[_Part]) -> None:
        self._uses = Counter(_key(pair) for part in parts for pair in part.pairs)
        self._kept: dict[tuple[int, int], Tensor] = {}

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
        self._uses[key] -= 1
        again = self._uses[key] > 0
        if again:
            self._kept[key] = matrix
        return (matrix if id(a) == key[0] else matrix.mT), again


def _key(pair: Pair) -> tuple[int, int]:
    """Name a pair, whichever comes first: one Gram matrix is the other's transpose."""
    a, b = sorted(map(id, pair))
    return a, b
