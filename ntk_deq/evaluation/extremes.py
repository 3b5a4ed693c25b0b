"""What takes a function to be minimised: `prox`, `moreau`, `conjugate`, `argmin`, `minimum`, `supremum`, `infimum`."""

from __future__ import annotations

from collections.abc import Mapping

from ntk_deq.errors import LimitError
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.tree import Expr


def extreme(expr: Expr, env: Environment, indices: Mapping[str, float]) -> Scalar | Matrix:
    """Evaluate what takes a function to be minimised, such as `prox(phi, x, mu)`.

    Args:
        expr: The call. Its first argument is a function: `expr.args[0].args` are the body and the argument, a typed
            name; the body at a value is evaluated in `ntk_deq.evaluation.balls.bound(expr.args[0], value, env)`.
        env: What the names mean.
        indices: Values of the step indices in scope.

    Raises:
        LimitError: No minimiser is computed for this function.
    """
    raise LimitError(f"`{expr.name}`: no minimiser is computed for this function yet")
