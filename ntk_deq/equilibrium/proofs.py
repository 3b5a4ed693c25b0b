"""What a certified solve gives: a ball, how it was proved, and what stays open."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Bool, Float
from torch import Tensor

from ntk_deq.certified.ball import Ball
from ntk_deq.certified.layers import Slopes


class Proof(StrEnum):
    """How an equilibrium or adjoint was proved to exist."""

    CONTRACTION = "contraction"
    EXACT = "an exact fixed point"
    LOCAL = "local contraction"
    INVERSE = "approximate inverse"
    NONE = "none"


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedEquilibrium:
    """A ball around a float solution that contains an equilibrium, if `proof` is not `NONE`.

    Attributes:
        ball: Centre and Frobenius radius, float64; an infinite radius where nothing is proved.
        proof: How.
        contraction: The Lipschitz bound of the proof: of the map, or of the Newton-like map.
        unique: Whether it is the only equilibrium anywhere; otherwise it is the only one in a ball around the centre.
        slopes: Bounds on the activation's derivative on the whole ball, N x m; 0 at an exact zero, as in PyTorch.
        reason: Why nothing is proved, or "".
    """

    ball: Ball
    proof: Proof
    contraction: float
    unique: bool
    slopes: Slopes
    reason: str = ""

    @property
    def value(self) -> Float[Tensor, "N m"]:
        """The float solution."""
        return self.ball.centre

    @property
    def radius(self) -> float:
        """Bound on the Frobenius distance of the equilibrium to `value`."""
        return self.ball.radius

    @property
    def pattern_certain(self) -> Bool[Tensor, "N m"]:
        """Where the activation's derivative at the equilibrium is certain."""
        return self.slopes.certain

    def __repr__(self) -> str:
        rows, cols = self.ball.shape
        if self.proof is Proof.NONE:
            return f"CertifiedEquilibrium({rows} x {cols}, nothing proved: {self.reason})"
        scope = "unique, by" if self.unique else "as" if self.proof is Proof.EXACT else "unique nearby, by"
        unsure = int((~self.pattern_certain).sum())
        return (
            f"CertifiedEquilibrium({rows} x {cols}, radius={self.radius:.3g}, {scope} {self.proof}, "
            f"Lipschitz constant {self.contraction:.6g}, {unsure} derivatives uncertain)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedAdjoint:
    """A ball that contains the adjoint at the equilibrium, for every choice of the derivatives that are not certain.

    Attributes:
        ball: Centre and Frobenius radius, float64; an infinite radius where nothing is proved.
        proof: How.
        contraction: The Lipschitz bound of the proof.
        reason: Why nothing is proved, or "".
    """

    ball: Ball
    proof: Proof
    contraction: float
    reason: str = ""

    @property
    def value(self) -> Float[Tensor, "N m"]:
        """The float solution."""
        return self.ball.centre

    @property
    def radius(self) -> float:
        """Bound on the Frobenius distance of the adjoint to `value`."""
        return self.ball.radius

    def __repr__(self) -> str:
        rows, cols = self.ball.shape
        if self.proof is Proof.NONE:
            return f"CertifiedAdjoint({rows} x {cols}, nothing proved: {self.reason})"
        how = f"by {self.proof}, Lipschitz constant {self.contraction:.6g}"
        return f"CertifiedAdjoint({rows} x {cols}, radius={self.radius:.3g}, {how})"
