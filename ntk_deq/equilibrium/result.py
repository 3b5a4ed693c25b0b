"""What a fixed-point solve gives: the point, and for every sample why it stopped and how good the point is.

The one place that looks behind PyTorch's transforms, where an autograd.Function needs more than the public API.

Two uses. Implicit differentiation sees only what is passed as an argument, and a derivative through a closure would
silently be zero: `check_closure` finds that out. And nested transforms run the derivative rules of an
autograd.Function with leftovers of the transform at hand, which would spoil the outer ones.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack, temporarily_pop_interpreter_stack
from torch.autograd import forward_ad

from ntk_deq.errors import ArgumentError


class Status(IntEnum):
    """Why the iteration of one sample ended.

    Example:
        >>> Status.DIVERGED.label, Status(0)
        ('diverged', <Status.CONVERGED: 0>)
    """

    CONVERGED = 0
    MAX_STEPS = 1
    DIVERGED = 2
    NON_FINITE = 3
    STAGNATED = 4

    @property
    def label(self) -> str:
        """The status in a word or two."""
        return _LABELS[self]

    @property
    def text(self) -> str:
        """The cause, and what to do about it."""
        return _TEXTS[self]


_LABELS = {
    Status.CONVERGED: "converged",
    Status.MAX_STEPS: "max steps",
    Status.DIVERGED: "diverged",
    Status.NON_FINITE: "non-finite",
    Status.STAGNATED: "stagnated",
}

_TEXTS = {
    Status.CONVERGED: "The residual norm(f(z) - z) is within the tolerance, or has stopped falling at rounding level.",
    Status.MAX_STEPS: (
        "The residual was still above the tolerance after `max_steps` steps. "
        "Raise `max_steps`, use the solver 'anderson', start closer, or loosen `rtol`/`atol`."
    ),
    Status.DIVERGED: (
        "The residual grew without bound, so the map is no contraction here. "
        "Make the map contract (smaller weights), or use the solver 'damped' with a small `damping`."
    ),
    Status.NON_FINITE: (
        "The map gave NaN or Inf; the last finite value is kept. "
        "Look for NaN or Inf in the inputs and parameters, and for overflow in the map."
    ),
    Status.STAGNATED: (
        "The residual stopped falling above the tolerance: a cycle, or rounding errors larger than the tolerance. "
        "Use the solver 'damped' (it breaks cycles), a wider dtype, or a looser `rtol`."
    ),
}


@dataclass(frozen=True, eq=False, repr=False)
class Equilibrium:
    """An approximate solution of z = f(z) with its evidence, sample by sample.

    Symbols: z* the exact fixed point, q a Lipschitz constant of f in z, residual r = norm(f(z) - z).
    Where q < 1, norm(z - z*) <= r/(1 - q) (Banach). The norm is Euclidean over the entries of one sample.

    Attributes:
        value: The point z, of the shape that the iteration started with.
        status: Codes of `Status`, one a sample.
        residual: The true residual norm(f(z) - z) at `value`, one a sample; inf where f(z) is not finite. Computed
            in floating point: its own rounding error is not included.
        steps: Updates made, one count a sample.
        contraction: The Lipschitz constant q that the caller gave, or None.
        solver: Name of the solver.
        bound: A bound on norm(z - z*) that is known for another reason than q < 1, one a sample; None: there is none.

    Example:
        >>> import torch
        >>> from ntk_deq.equilibrium import solve_fixed_point
        >>> solve_fixed_point(lambda z: 0.5 * z + 1.0, torch.zeros(3, 2, dtype=torch.float64), contraction=0.5)
        Equilibrium of shape (3, 2), float64 on cpu, solver picard
          status: 3 converged
          residual: at most 5.02e-15 after at most 48 steps
          contraction q: 0.5, error bound: at most 1e-14
    """

    value: Float[Tensor, "*shape"]
    status: Int[Tensor, "*batch"]
    residual: Float[Tensor, "*batch"]
    steps: Int[Tensor, "*batch"]
    contraction: float | None
    solver: str
    bound: Float[Tensor, "*batch"] | None = None

    @property
    def converged(self) -> Bool[Tensor, "*batch"]:
        """Whether each sample is solved."""
        return self.status == int(Status.CONVERGED)

    @property
    def all_converged(self) -> bool:
        """Whether every sample is solved (true for an empty batch)."""
        return bool(self.converged.all())

    @property
    def error_bound(self) -> Float[Tensor, "*batch"] | None:
        """A bound on norm(z - z*), one a sample; None where nothing is known.

        It is residual/(1 - q), inf where q >= 1, or `bound`.
        """
        if self.bound is not None:
            return self.bound
        if self.contraction is None:
            return None
        if self.contraction < 1:
            return self.residual / (1 - self.contraction)
        return self.residual.new_full(self.residual.shape, float("inf"))

    def counts(self) -> dict[Status, int]:
        """Return how many samples ended in each status, statuses without a sample left out."""
        codes = self.status.reshape(-1).tolist()
        return {status: codes.count(int(status)) for status in Status if int(status) in codes}

    def describe_failures(self) -> str:
        """Return which samples failed, why, and what to do; empty where none failed."""
        codes = self.status.reshape(-1).tolist()
        lines = []
        for status, count in self.counts().items():
            if status is Status.CONVERGED:
                continue
            where = [i for i, code in enumerate(codes) if code == int(status)]
            listed = ", ".join(map(str, where[:5])) + (", ..." if count > 5 else "")
            worst = max(self.residual.reshape(-1)[where].tolist())
            lines.append(
                f"{count} of {len(codes)} {status.label} (sample {listed}; residual {worst:.3g}). {status.text}"
            )
        return "\n".join(lines)

    def describe(self) -> str:
        """Return status counts, worst residual and most steps in one line."""
        return "; ".join(text for name, text in self._rows() if name in ("status", "residual"))

    def _rows(self) -> list[tuple[str, str]]:
        counted = ", ".join(f"{count} {status.label}" for status, count in self.counts().items()) or "no samples"
        rows = [("status", counted)]
        if self.residual.numel():
            worst, most = float(self.residual.max()), int(self.steps.max())
            rows.append(("residual", f"at most {worst:.3g} after at most {most} steps"))
        bound = self.error_bound
        shown = f"at most {float(bound.max()):.3g}" if bound is not None and bound.numel() else ""
        if self.bound is not None:
            rows.append(("error bound", shown or "no samples"))
        elif bound is not None:
            rows.append(("contraction q", f"{self.contraction:.6g}{', error bound: ' if shown else ''}{shown}"))
        return rows

    def _title(self) -> str:
        dtype = str(self.value.dtype).removeprefix("torch.")
        return f"Equilibrium of shape {tuple(self.value.shape)}, {dtype} on {self.value.device}, solver {self.solver}"

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {name}: {text}" for name, text in self._rows())])

    def _repr_html_(self) -> str:
        """Return the same summary as a table, for notebooks."""
        return html_table(self._title(), dict(self._rows()))


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return a two-column HTML table with a caption; every text is escaped.

    Example:
        >>> html_table("Model", {"width": 3})
        '<table><caption>Model</caption><tr><th>width</th><td>3</td></tr></table>'
    """
    body = "".join(
        f"<tr><th>{html.escape(key, quote=False)}</th><td>{html.escape(str(value), quote=False)}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table><caption>{html.escape(title, quote=False)}</caption>{body}</table>"


def one_line(name: str, rows: Mapping[str, object]) -> str:
    """Return the same facts on one line.

    Example:
        >>> one_line("Model", {"width": 3, "dtype": "float64"})
        'Model(width=3, dtype=float64)'
    """
    return f"{name}({', '.join(f'{key}={value}' for key, value in rows.items())})"


def check_map(initial: Tensor, batch_dims: int, step: object) -> None:
    """Refuse what is no map, or no point that one could start from.

    Args:
        initial: The point.
        batch_dims: How many of its leading dimensions count samples.
        step: The map.

    Raises:
        ArgumentError: The message says which, what is allowed and what came.
    """
    if not callable(step):
        raise ArgumentError(f"The map of a fixed point must be a function of a tensor. Got {step!r:.60}.")
    if not (isinstance(initial, Tensor) and initial.is_floating_point()):
        got = f"dtype {initial.dtype}" if isinstance(initial, Tensor) else type(initial).__name__
        raise ArgumentError(f"`initial` of a fixed point must be a real floating-point tensor. Got {got}.")
    if not (isinstance(batch_dims, int) and 0 <= batch_dims <= initial.ndim):
        allowed = f"an integer from 0 to {initial.ndim}, the dimensions of `initial`"
        raise ArgumentError(f"`batch_dims` must be {allowed}. Got {batch_dims!r}.")


def check_closure(step: Callable[..., Tensor], tensors: Sequence[Tensor]) -> None:
    """Evaluate `step` once on plain copies of its arguments; anything tracked in the output came from a closure.

    Args:
        step: The map.
        tensors: Its arguments.

    Raises:
        ArgumentError: The output requires a gradient, carries a tangent, or is batched by `vmap`.

    Example:
        >>> import torch
        >>> weight = torch.ones(2, requires_grad=True)
        >>> check_closure(lambda z, w: w * z, [torch.ones(2), weight])
        >>> check_closure(lambda z: weight * z, [torch.ones(2)])  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: The map of a differentiable fixed point closes over a tensor that is
        differentiated or vmapped, ...
    """
    output = step(*(_plain_copy(tensor) for tensor in tensors))
    if isinstance(output, Tensor) and _is_tracked(output):
        raise ArgumentError(
            "The map of a differentiable fixed point closes over a tensor that is differentiated or vmapped, and its "
            "derivative would be lost. Pass every such tensor as an argument: fixed_point(step, initial, *args)."
        )


def unwrap_finished(tensors: Sequence[Any]) -> list[Any]:
    """Strip the wrappers of transforms that have ended: a pullback may be called after its `vjp` has returned.

    Operators do so on their own, an autograd.Function does not.
    """
    return [_functorch.unwrap_if_dead(t) if isinstance(t, Tensor) else t for t in tensors]


def is_batched(tensor: Tensor) -> bool:
    """Say whether `vmap` hides a batch dimension in the tensor, so that nothing may be decided by its values."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False


def is_traced(tensor: Tensor) -> bool:
    """Say whether a transform of `torch.func` is at work on the tensor."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor))


def tangents_off() -> AbstractContextManager[None]:
    """Return a context in which no forward-mode derivative is computed, as `torch.no_grad` does for reverse mode."""
    return forward_ad._set_fwd_grad_enabled(False)


def outer_tangents_kept() -> AbstractContextManager[None]:
    """Return a context in which a `jvp` rule is itself forward-differentiable by outer transforms.

    PyTorch runs the rule with forward-mode AD switched off at every level, which makes nested `jvp` lose terms.
    """
    return forward_ad._set_fwd_grad_enabled(True)


def without_tangents(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the primals at the innermost forward-mode level; what outer levels track stays tracked."""
    return [
        forward_ad.unpack_dual(tensor, level=0).primal if tensor.is_floating_point() else tensor for tensor in tensors
    ]


def _plain_copy(tensor: Tensor) -> Tensor:
    """Return the values of a tensor free of gradients, tangents and batching (of a batch, the first entry)."""
    with temporarily_clear_interpreter_stack():
        while _functorch.is_functorch_wrapped_tensor(tensor):
            inner = _functorch.get_unwrapped(tensor)
            if _functorch.is_batchedtensor(tensor):
                inner = inner.select(_functorch.maybe_get_bdim(tensor), 0)
            tensor = inner
        return tensor.detach()


def _is_tracked(tensor: Tensor) -> bool:
    """Look at the tensor from the innermost transform outwards."""
    if _functorch.is_batchedtensor(tensor) or tensor.requires_grad:
        return True
    interpreter = _functorch.peek_interpreter_stack()
    if interpreter is None or interpreter.key() != _functorch.TransformType.Vmap:  # no unpacking rule under vmap
        if forward_ad.unpack_dual(tensor, level=0).tangent is not None:
            return True
    if interpreter is None:
        return False
    if _functorch.maybe_get_level(tensor) == interpreter.level():
        tensor = _functorch.get_unwrapped(tensor)
    with temporarily_pop_interpreter_stack():
        return _is_tracked(tensor)
