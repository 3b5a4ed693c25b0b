"""How a model's map depends on its parameters, said in data: what bounds on derivatives along a run rest on."""

from __future__ import annotations

from dataclasses import dataclass

from ntk_deq.certified.layers import Activation


@dataclass(frozen=True)
class LayerForm:
    """A model of the form Z = act(factor Z P + inner(X S)), yhat = Z r, and which parameter is P, S and r.

    Both activations are piecewise linear, with slopes in [0, 1] that change at zero only.

    Attributes:
        weight: Name of P, m x m.
        source: Name of S, d x m.
        readout: Name of r, length m.
        factor: A fixed positive number, exactly this float.
        activation: act.
        inner: inner.
        transposed: Whether the parameters hold P' and S' instead.

    Example:
        >>> from ntk_deq.certified.layers import IDENTITY
        >>> LayerForm("W", "U", "b", 1.0, IDENTITY, IDENTITY, transposed=True).names
        ('W', 'U', 'b')
    """

    weight: str
    source: str
    readout: str
    factor: float
    activation: Activation
    inner: Activation
    transposed: bool = False

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of P, S and r."""
        return self.weight, self.source, self.readout
