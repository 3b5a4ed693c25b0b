"""The ReLU implicit network of Gao and Gao (2022): Z = relu(gamma Z A + relu(X W)), yhat = Z b."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import matmul, scale
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.scalar import exact
from ntk_deq.certified.structure import relu
from ntk_deq.equilibrium.slopes import RELU, BallLayer
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import IMPLICIT_RELU, ModelSignature
from ntk_deq.systems.checks import check_variables, owned_variables
from ntk_deq.systems.display import html_table, one_line
from ntk_deq.systems.methods import AnsweringModel
from ntk_deq.systems.model import LayerForm
from ntk_deq.systems.parameter_slopes import ParameterSlope, RankOne

# A printed model must not wait on an SVD: 512 columns take well under a tenth of a second.
_WIDEST_NORM_SHOWN = 512


@dataclass(frozen=True, eq=False, repr=False)
class ImplicitReLU(AnsweringModel):
    """A network of infinite depth with ReLU units, tied weights and a trained feature map.

        Z = relu(gamma Z A + Phi),  Phi = relu(X W),  yhat = Z b

    The derivative of relu at zero is taken as zero, as PyTorch does.

    Symbols:
        W, A, b, gamma, Z, Phi: as in (1)-(4) of the reference; rows of X and Z are samples.

    Args:
        W: Weights of the feature map, d x m.
        A: Weights of the implicit layer, m x m; gamma ||A|| < 1 makes the equilibrium unique.
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
        ImplicitReLU(d=1, m=1, gamma=0.5, dtype=float64, device=cpu, gamma*||A||=0.5)
        >>> model.step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """

    signature: ClassVar[ModelSignature] = IMPLICIT_RELU

    W: Float[Tensor, "d m"]
    A: Float[Tensor, "m m"]
    b: Float[Tensor, " m"]
    gamma: Float[Tensor, ""] | float

    def __post_init__(self) -> None:
        """Check every tensor and turn gamma into a 0-d tensor."""
        check_variables(self.signature, self.parameters())
        gamma = self.gamma
        if not isinstance(gamma, Tensor):
            if isinstance(gamma, bool) or not isinstance(gamma, int | float):
                raise ArgumentError(
                    f"`gamma` of {self.signature.name} must be a number with 0 < gamma < 1. Got {gamma!r}."
                )
            gamma = torch.as_tensor(gamma, dtype=self.W.dtype, device=self.W.device)
        check_variables(self.signature, {**self.parameters(), "gamma": gamma})
        if not 0 < gamma < 1:
            raise ArgumentError(
                f"`gamma` of {self.signature.name} must be a number with 0 < gamma < 1. Got {gamma.item()!r}."
            )
        object.__setattr__(self, "gamma", gamma)

    @classmethod
    def from_variables(cls, values: Mapping[str, Tensor]) -> ImplicitReLU:
        """Build the model from values by variable name; X, y and other names are ignored.

        Example:
            >>> one = torch.ones(1, 1)
            >>> ImplicitReLU.from_variables({"W": one, "A": one, "b": one[0], "gamma": one[0, 0] / 4, "X": one}).gamma
            tensor(0.2500)
        """
        return cls(**owned_variables(cls.signature, values))

    @classmethod
    def random(
        cls,
        d: int,
        m: int,
        *,
        generator: torch.Generator,
        gamma: float = 0.5,
        norm_A: float = 1.0,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> ImplicitReLU:
        """Draw a well-posed model: W ~ N(0, 2/d), b ~ N(0, 1/m), A Gaussian scaled to spectral norm `norm_A`.

        Args:
            d: Input dimension, >= 1.
            m: Width, >= 1.
            generator: A generator on the CPU; numbers are drawn there in float64 and then moved.
            gamma: Fixed scale, 0 < gamma < 1.
            norm_A: Spectral norm of A, >= 0; gamma * norm_A is the contraction bound.
            dtype: float64 or float32.
            device: Where the model lives.

        Example:
            >>> ImplicitReLU.random(5, 8, generator=torch.Generator().manual_seed(0))
            ImplicitReLU(d=5, m=8, gamma=0.5, dtype=float64, device=cpu, gamma*||A||=0.5)
        """
        if min(d, m) < 1:
            raise ArgumentError(f"Sizes of {cls.signature.name} must be >= 1. Got d = {d}, m = {m}.")
        if not norm_A >= 0:
            raise ArgumentError(f"`norm_A` of {cls.signature.name} must be a number >= 0. Got {norm_A!r}.")

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        W, A, b = normal(d, m) * (2 / d) ** 0.5, normal(m, m), normal(m) / m**0.5
        A *= norm_A / torch.linalg.matrix_norm(A, ord=2)
        W, A, b = (tensor.to(device=device, dtype=dtype) for tensor in (W, A, b))
        return cls(W=W, A=A, b=b, gamma=gamma)

    def parameters(self) -> dict[str, Tensor]:
        """Return W, A and b by name."""
        return {"W": self.W, "A": self.A, "b": self.b}

    def step(
        self, Z: Float[Tensor, "*N m"], X: Float[Tensor, "*N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "*N m"]:
        """Return relu(gamma Z A + relu(X W)); one sample may also come as a vector."""
        return self.step_at(X, parameters)(Z)

    def step_at(
        self, X: Float[Tensor, "*N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Return the map Z -> relu(gamma Z A + Phi) with Phi and gamma A worked out once.

        Example:
            >>> one = torch.ones(1, 1)
            >>> ImplicitReLU(one, one, one[0], gamma=0.5).step_at(one)(one)
            tensor([[1.5000]])
        """
        p = self.parameters() if parameters is None else parameters
        Phi, scaled = torch.relu(X @ p["W"]), self.gamma * p["A"]
        return lambda Z: torch.relu(Z @ scaled + Phi)

    def readout(self, Z: Float[Tensor, "*N m"], parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, "*N"]:
        """Return Z b."""
        return Z @ (self.b if parameters is None else parameters["b"])

    def initial_state(self, X: Float[Tensor, "*N d"]) -> Float[Tensor, "*N m"]:
        """Return zeros with the dtype and device of X."""
        return X.new_zeros(*X.shape[:-1], self.A.shape[0])

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return gamma ||A||, since relu is 1-Lipschitz entry by entry.

        Example:
            >>> one = torch.ones(1, 1)
            >>> ImplicitReLU(one, 3 * one, one[0], gamma=0.25).contraction_bound()
            tensor(0.7500)
        """
        A = self.A if parameters is None else parameters["A"]
        return self.gamma * torch.linalg.matrix_norm(A, ord=2)

    def adjoint_step_at(
        self,
        Z: Float[Tensor, "*N m"],
        X: Float[Tensor, "*N d"],
        parameters: Mapping[str, Tensor] | None = None,
        output: int = 0,
    ) -> Callable[[Tensor], Tensor]:
        """Return the map V -> 1 b' + gamma (V .* D) A', D = 1[gamma Z A + Phi > 0], with D worked out once.

        Example:
            >>> one = torch.ones(1, 1)
            >>> ImplicitReLU(one, one, one[0], gamma=0.5).adjoint_step_at(2 * one, one)(2 * one)
            tensor([[2.]])
        """
        p = self.parameters() if parameters is None else parameters
        b, scaled = p["b"], self.gamma * p["A"]
        D = (Z @ scaled + torch.relu(X @ p["W"]) > 0).to(Z.dtype)
        return lambda V: (V * D) @ scaled.T + b

    def in_balls(self, X: Float[Tensor, "N d"]) -> BallLayer:
        """Return Z -> relu(Z gamma A + Phi) in balls.

        Example:
            >>> one = torch.ones(1, 1, dtype=torch.float64)
            >>> ImplicitReLU(one, one, one[0], gamma=0.5).in_balls(one).step(Ball(2 * one)).centre.item()
            2.0
        """
        W, A, b, inputs = (Ball(tensor.double()) for tensor in (self.W, self.A, self.b[None], X))
        pre = matmul(inputs, W)
        # Where a column of A is zero and relu cuts X W, the outer relu sees an exact zero.
        idle = ~(self.A != 0).any(dim=0)
        cut = pre.centre <= 0 if pre.is_exact else pre.centre < -pre.radius
        return BallLayer(
            scale(exact(float(self.gamma)), A), relu(pre), b, RELU, cut & idle if bool(idle.any()) else None
        )

    def layer_form(self) -> LayerForm:
        """Return Z = relu(gamma Z A + relu(X W)), yhat = Z b, as data."""
        return LayerForm("A", "W", "b", float(self.gamma), RELU, RELU)

    def tangent_factors(
        self, X: Float[Tensor, "N d"], Z: Float[Tensor, "N m"], adjoint: Float[Tensor, "N m"], output: int = 0
    ) -> dict[str, tuple[ParameterSlope, ...]]:
        """Return the factors of W: (G.*E)(G.*E)' .* XX', of A: gamma^2 GG' .* ZZ', and of b: ZZ'.

        The derivative of sample n's prediction along (dW, dA, db) is x'dW (g.*e) + gamma z'dA g + z'db, a sum of
        inner products of rank-one matrices; those of two samples multiply factor by factor.

        Symbols:
            G = D .* V: the adjoint V past the outer relu, D = 1[gamma Z A + Phi > 0]; E = 1[X W > 0].

        References:
            Gao and Gao (2022), (10)-(13), which write the same Gram matrix with Kronecker products.
        """
        pre = X @ self.W
        G = adjoint * (Z @ (self.gamma * self.A) + torch.relu(pre) > 0)
        return {
            "W": (RankOne(X, G * (pre > 0)),),
            "A": (RankOne(Z, G, float(self.gamma)),),
            "b": (RankOne(Z, None),),
        }

    def _facts(self) -> dict[str, object]:
        d, m = self.W.shape
        facts: dict[str, object] = {
            "d": d,
            "m": m,
            "gamma": f"{float(self.gamma):.6g}",
            "dtype": str(self.W.dtype).removeprefix("torch."),
            "device": self.W.device,
        }
        if m <= _WIDEST_NORM_SHOWN:
            facts["gamma*||A||"] = f"{float(self.contraction_bound()):.6g}"
        return facts

    def __repr__(self) -> str:
        return one_line(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self.signature.title, self._facts())
