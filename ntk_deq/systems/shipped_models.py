"""Two shipped models under names of their own: their declarations compiled, with draws of a chosen norm."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import IMPLICIT_RELU, LINEAR_IMPLICIT, ModelSignature
from ntk_deq.systems.formula_model import FormulaModel


class ImplicitReLU(FormulaModel):
    """A network of infinite depth with ReLU units, tied weights and a trained feature map.

        Z = relu(gamma Z A + Phi),  Phi = relu(X W),  yhat = Z b

    The derivative of relu at zero is taken as zero, as PyTorch does.

    Symbols:
        W, A, b, gamma, Z, Phi: as in (1)-(4) of the reference; rows of X and Z are samples.

    Args:
        W: Weights of the feature map, d x m.
        A: Weights of the implicit layer, m x m; gamma norm(A) < 1 makes the equilibrium unique.
        b: Weights of the output layer, length m.
        gamma: Fixed scale, a number or 0-d tensor with 0 < gamma < 1; kept as a 0-d tensor.

    Raises:
        ArgumentError: A shape, dtype, device or value outside what is allowed.

    References:
        Gao and Gao (2022), arXiv:2205.07463, (1)-(4).

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = ImplicitReLU(W=one, A=one, b=one[0], gamma=0.5)
        >>> model
        ImplicitReLU(d=1, m=1, gamma=0.5, dtype=float64, device=cpu, gamma*norm(A)=0.5)
        >>> model.step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """

    signature: ClassVar[ModelSignature] = IMPLICIT_RELU

    W: Float[Tensor, "d m"]
    A: Float[Tensor, "m m"]
    b: Float[Tensor, " m"]
    gamma: Float[Tensor, ""]

    @classmethod
    def random(  # type: ignore[override]  # sizes come in order, and a norm in place of a factor
        cls,
        d: int,
        m: int,
        *,
        generator: torch.Generator,
        gamma: float = 0.5,
        norm_A: float = 1.0,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Draw a well-posed model: W ~ N(0, 2/d), b ~ N(0, 1/m), A Gaussian scaled to spectral norm `norm_A`.

        Args:
            d: Input dimension, >= 1.
            m: Width, >= 1.
            generator: A generator on the CPU; numbers are drawn there in float64 and then moved.
            gamma: Fixed scale, 0 < gamma < 1.
            norm_A: Spectral norm of A, >= 0; gamma * norm_A is the contraction bound.
            dtype: float64 or float32.
            device: Where the model lives.

        Raises:
            ArgumentError: A size or a number is out of range.

        Example:
            >>> ImplicitReLU.random(5, 8, generator=torch.Generator().manual_seed(0))
            ImplicitReLU(d=5, m=8, gamma=0.5, dtype=float64, device=cpu, gamma*norm(A)=0.5)
        """
        _check_draw(cls.signature, d, m, "norm_A", norm_A)
        W, A, b = _normal((d, m), generator) * (2 / d) ** 0.5, _normal((m, m), generator), _normal((m,), generator)
        A *= norm_A / torch.linalg.matrix_norm(A, ord=2)
        W, A, b = (tensor.to(device=device, dtype=dtype) for tensor in (W, A, b / m**0.5))
        return cls(W=W, A=A, b=b, gamma=gamma)


class LinearImplicit(FormulaModel):
    """A linear network of infinite depth, whose equilibrium has the closed form Z = X U'(I - W')^-1.

        Z = Z W' + X U',  yhat = Z b

    Symbols:
        W, U, b: weights of the implicit, the input and the output layer; rows of X and Z are samples.

    Args:
        W: Weights of the implicit layer, m x m; norm(W) < 1 makes the iteration a contraction.
        U: Weights of the input, m x d.
        b: Weights of the output layer, length m.

    Raises:
        ArgumentError: A shape, dtype, device or value outside what is allowed.

    References:
        Kawaguchi (2021), arXiv:2102.07346, in the linear case.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=one[0])
        >>> model
        LinearImplicit(m=1, d=1, dtype=float64, device=cpu, norm(W)=0.5)
        >>> model.step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """

    signature: ClassVar[ModelSignature] = LINEAR_IMPLICIT

    W: Float[Tensor, "m m"]
    U: Float[Tensor, "m d"]
    b: Float[Tensor, " m"]

    @classmethod
    def random(  # type: ignore[override]  # likewise
        cls,
        d: int,
        m: int,
        *,
        generator: torch.Generator,
        norm_W: float = 0.5,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Draw a well-posed model: U ~ N(0, 1/d), b ~ N(0, 1/m), W Gaussian scaled to spectral norm `norm_W`.

        Args:
            d: Input dimension, >= 1.
            m: Width, >= 1.
            generator: A generator on the CPU; numbers are drawn there in float64 and then moved.
            norm_W: Spectral norm of W, >= 0, which is the contraction bound.
            dtype: float64 or float32.
            device: Where the model lives.

        Raises:
            ArgumentError: A size or a number is out of range.

        Example:
            >>> LinearImplicit.random(5, 8, generator=torch.Generator().manual_seed(0))
            LinearImplicit(m=8, d=5, dtype=float64, device=cpu, norm(W)=0.5)
        """
        _check_draw(cls.signature, d, m, "norm_W", norm_W)
        W, U, b = _normal((m, m), generator), _normal((m, d), generator) / d**0.5, _normal((m,), generator) / m**0.5
        W *= norm_W / torch.linalg.matrix_norm(W, ord=2)
        W, U, b = (tensor.to(device=device, dtype=dtype) for tensor in (W, U, b))
        return cls(W=W, U=U, b=b)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _check_draw(signature: ModelSignature, d: int, m: int, name: str, norm: float) -> None:
    if min(d, m) < 1:
        raise ArgumentError(f"Sizes of {signature.name} must be >= 1. Got d = {d}, m = {m}.")
    if not norm >= 0:
        raise ArgumentError(f"`{name}` of {signature.name} must be a number >= 0. Got {norm!r}.")
