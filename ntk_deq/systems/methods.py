"""What a model can be asked directly, beside the functions of this package that take it: solve, predict, loss.

Tensors come and go the way that the declaration has them, with samples in rows or in columns. Every result that shows
itself in a notebook does so by one table of facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape

from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.driver import DEFAULT_MAX_STEPS
from ntk_deq.equilibrium.result import Equilibrium
from ntk_deq.equilibrium.solvers import Solver
from ntk_deq.equilibrium.splitting import Splitting
from ntk_deq.errors import ArgumentError
from ntk_deq.systems.checks import check_targets
from ntk_deq.systems.model import EquilibriumModel, output_loss
from ntk_deq.systems.solve import equilibrium_features, predict, solve_equilibrium


class AnsweringModel(EquilibriumModel):
    """A model with methods for what is asked most."""

    def solve(
        self,
        X: Float[Tensor, "_ _"],
        *,
        solver: str | Solver | Splitting = "picard",
        rtol: float | None = None,
        atol: float | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        raise_on_failure: bool = True,
    ) -> Equilibrium:
        """Find the equilibrium; `value` of the result has the shape that the state is declared with.

        Args:
            X: Inputs.
            solver: As in `solve_equilibrium`.
            rtol: Likewise.
            atol: Likewise.
            max_steps: Likewise.
            raise_on_failure: Likewise.

        Raises:
            ArgumentError: There is no equilibrium in the system's declaration, or an argument is out of range.
            EquilibriumError: A sample is not solved and `raise_on_failure` is set.
        """
        if not self.signature.state:
            raise ArgumentError(f"The system {self.signature.name} has no equilibrium to solve for; `predict` it.")
        found = solve_equilibrium(
            self, X, solver=solver, rtol=rtol, atol=atol, max_steps=max_steps, raise_on_failure=raise_on_failure
        )
        return replace(found, value=self.declared(self.signature.state, found.value))

    def predict(self, X: Float[Tensor, "_ _"]) -> Float[Tensor, _ * k]:
        """Return the predictions, differentiable in X and in tensors that parameters were made of.

        Args:
            X: Inputs.

        Raises:
            ArgumentError: X does not fit.
            EquilibriumError: An equilibrium was not found.
        """
        return predict(self, X)

    def loss(self, X: Float[Tensor, "_ _"], y: Float[Tensor, _ * k]) -> Float[Tensor, ""]:
        """Return the declared loss, differentiable likewise.

        Args:
            X: Inputs.
            y: Targets.

        Raises:
            ArgumentError: X or y does not fit, or the loss cannot be computed from them.
            EquilibriumError: An equilibrium was not found.
        """
        own, state = self.parameters(), self.signature.state
        features = equilibrium_features(self, X)
        predictions = self.predictions(features, X)
        check_targets(self.target_rows(y), predictions, "loss")
        more = {**own, state: self.declared(state, features)} if state else own
        return output_loss(self, X, y).value(predictions, more)


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return a two-column HTML table with a caption; every text is escaped.

    Example:
        >>> html_table("Model", {"width": 3})
        '<table><caption>Model</caption><tr><th>width</th><td>3</td></tr></table>'
    """
    body = "".join(
        f"<tr><th>{escape(key, quote=False)}</th><td>{escape(str(value), quote=False)}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table><caption>{escape(title, quote=False)}</caption>{body}</table>"


def one_line(name: str, rows: Mapping[str, object]) -> str:
    """Return the same facts on one line.

    Example:
        >>> one_line("Model", {"width": 3, "dtype": "float64"})
        'Model(width=3, dtype=float64)'
    """
    return f"{name}({', '.join(f'{key}={value}' for key, value in rows.items())})"
