"""The linear implicit network: z = W z + U x for each sample, yhat = b'z."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import matmul
from ntk_deq.certified.ball import Ball
from ntk_deq.equilibrium.slopes import IDENTITY, BallLayer
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import LINEAR_IMPLICIT, ModelSignature
from ntk_deq.systems.checks import check_variables, owned_variables
from ntk_deq.systems.display import html_table, one_line
from ntk_deq.systems.methods import AnsweringModel
from ntk_deq.systems.model import LayerForm
from ntk_deq.systems.parameter_slopes import ParameterSlope, RankOne

# A printed model must not wait on an SVD: 512 columns take well under a tenth of a second.
_WIDEST_NORM_SHOWN = 512


@dataclass(frozen=True, eq=False, repr=False)
class LinearImplicit(AnsweringModel):
    """A linear network of infinite depth, whose equilibrium has the closed form Z = X U'(I - W')^-1.

    Symbols:
        W, U, b: weights of the implicit, the input and the output layer; rows of X and Z are samples.

    Args:
        W: Weights of the implicit layer, m x m; ||W|| < 1 makes the iteration a contraction.
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
        LinearImplicit(d=1, m=1, dtype=float64, device=cpu, ||W||=0.5)
        >>> model.step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """

    signature: ClassVar[ModelSignature] = LINEAR_IMPLICIT

    W: Float[Tensor, "m m"]
    U: Float[Tensor, "m d"]
    b: Float[Tensor, " m"]

    def __post_init__(self) -> None:
        """Check every tensor."""
        check_variables(self.signature, self.parameters())

    @classmethod
    def from_variables(cls, values: Mapping[str, Tensor]) -> LinearImplicit:
        """Build the model from values by variable name; X, y and other names are ignored.

        Example:
            >>> one = torch.ones(1, 1)
            >>> LinearImplicit.from_variables({"W": one / 2, "U": one, "b": one[0], "y": one[0]}).U
            tensor([[1.]])
        """
        return cls(**owned_variables(cls.signature, values))

    @classmethod
    def random(
        cls,
        d: int,
        m: int,
        *,
        generator: torch.Generator,
        norm_W: float = 0.5,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> LinearImplicit:
        """Draw a well-posed model: U ~ N(0, 1/d), b ~ N(0, 1/m), W Gaussian scaled to spectral norm `norm_W`.

        Args:
            d: Input dimension, >= 1.
            m: Width, >= 1.
            generator: A generator on the CPU; numbers are drawn there in float64 and then moved.
            norm_W: Spectral norm of W, >= 0, which is the contraction bound.
            dtype: float64 or float32.
            device: Where the model lives.

        Example:
            >>> LinearImplicit.random(5, 8, generator=torch.Generator().manual_seed(0))
            LinearImplicit(d=5, m=8, dtype=float64, device=cpu, ||W||=0.5)
        """
        if min(d, m) < 1:
            raise ArgumentError(f"Sizes of {cls.signature.name} must be >= 1. Got d = {d}, m = {m}.")
        if not norm_W >= 0:
            raise ArgumentError(f"`norm_W` of {cls.signature.name} must be a number >= 0. Got {norm_W!r}.")

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        W, U, b = normal(m, m), normal(m, d) / d**0.5, normal(m) / m**0.5
        W *= norm_W / torch.linalg.matrix_norm(W, ord=2)
        W, U, b = (tensor.to(device=device, dtype=dtype) for tensor in (W, U, b))
        return cls(W=W, U=U, b=b)

    def parameters(self) -> dict[str, Tensor]:
        """Return W, U and b by name."""
        return {"W": self.W, "U": self.U, "b": self.b}

    def step(
        self, Z: Float[Tensor, "*N m"], X: Float[Tensor, "*N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "*N m"]:
        """Return Z W' + X U'; one sample may also come as a vector."""
        return self.step_at(X, parameters)(Z)

    def step_at(
        self, X: Float[Tensor, "*N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Return the map Z -> Z W' + X U' with the input's part worked out once.

        Example:
            >>> one = torch.ones(1, 1)
            >>> LinearImplicit(one / 2, one, one[0]).step_at(one)(one)
            tensor([[1.5000]])
        """
        p = self.parameters() if parameters is None else parameters
        W, injected = p["W"], X @ p["U"].T
        return lambda Z: Z @ W.T + injected

    def readout(self, Z: Float[Tensor, "*N m"], parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, "*N"]:
        """Return Z b."""
        return Z @ (self.b if parameters is None else parameters["b"])

    def initial_state(self, X: Float[Tensor, "*N d"]) -> Float[Tensor, "*N m"]:
        """Return zeros with the dtype and device of X."""
        return X.new_zeros(*X.shape[:-1], self.W.shape[0])

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return ||W||.

        Example:
            >>> one = torch.ones(1, 1)
            >>> LinearImplicit(one / 2, one, one[0]).contraction_bound()
            tensor(0.5000)
        """
        return torch.linalg.matrix_norm(self.W if parameters is None else parameters["W"], ord=2)

    def adjoint_step_at(
        self,
        Z: Float[Tensor, "*N m"],
        X: Float[Tensor, "*N d"],
        parameters: Mapping[str, Tensor] | None = None,
        output: int = 0,
    ) -> Callable[[Tensor], Tensor]:
        """Return the map V -> 1 b' + V W; it does not depend on where it is taken, so that Z and X do not enter.

        Example:
            >>> one = torch.ones(1, 1)
            >>> LinearImplicit(one / 2, one, one[0]).adjoint_step_at(one, one)(2 * one)
            tensor([[2.]])
        """
        p = self.parameters() if parameters is None else parameters
        W, b = p["W"], p["b"]
        return lambda V: V @ W + b

    def in_balls(self, X: Float[Tensor, "N d"]) -> BallLayer:
        """Return Z -> Z W' + X U' in balls.

        Example:
            >>> one = torch.ones(1, 1, dtype=torch.float64)
            >>> LinearImplicit(one / 2, one, one[0]).in_balls(one).step(Ball(2 * one)).centre.item()
            2.0
        """
        W, U, b, inputs = (Ball(tensor.double()) for tensor in (self.W.mT, self.U.mT, self.b[None], X))
        return BallLayer(W, matmul(inputs, U), b, IDENTITY)

    def layer_form(self) -> LayerForm:
        """Return Z = Z W' + X U', yhat = Z b, as data."""
        return LayerForm("W", "U", "b", 1.0, IDENTITY, IDENTITY, transposed=True)

    def tangent_factors(
        self, X: Float[Tensor, "N d"], Z: Float[Tensor, "N m"], adjoint: Float[Tensor, "N m"], output: int = 0
    ) -> dict[str, tuple[ParameterSlope, ...]]:
        """Return the factors of W: GG' .* ZZ', of U: GG' .* XX', and of b: ZZ'.

        The derivative of sample n's prediction along (dW, dU, db) is g'dW z + g'dU x + z'db.

        Symbols:
            G: the adjoint, whose rows are all (I - W')^-1 b.
        """
        return {
            "W": (RankOne(adjoint, Z),),
            "U": (RankOne(adjoint, X),),
            "b": (RankOne(Z, None),),
        }

    def _facts(self) -> dict[str, object]:
        m, d = self.U.shape
        facts: dict[str, object] = {
            "d": d,
            "m": m,
            "dtype": str(self.W.dtype).removeprefix("torch."),
            "device": self.W.device,
        }
        if m <= _WIDEST_NORM_SHOWN:
            facts["||W||"] = f"{float(self.contraction_bound()):.6g}"
        return facts

    def __repr__(self) -> str:
        return one_line(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self.signature.title, self._facts())
