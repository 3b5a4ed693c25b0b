"""The one place that looks behind PyTorch's transforms, where an autograd.Function needs more than the public API.

Two uses. Implicit differentiation sees only what is passed as an argument, and a derivative through a closure would
silently be zero: `check_closure` finds that out. And nested transforms run the derivative rules of an
autograd.Function with leftovers of the transform at hand, which would spoil the outer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack, temporarily_pop_interpreter_stack
from torch.autograd import forward_ad

from ntk_deq.errors import ArgumentError


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
