"""The fixed-point solvers, by name."""

from __future__ import annotations

from dataclasses import fields

from ntk_deq.equilibrium.solvers.anderson import Anderson
from ntk_deq.equilibrium.solvers.base import Solver
from ntk_deq.equilibrium.solvers.damped import Damped
from ntk_deq.equilibrium.solvers.picard import Picard
from ntk_deq.errors import ArgumentError, nearest_name

__all__ = ["SOLVERS", "Anderson", "Damped", "Picard", "Solver", "as_solver", "make_solver"]

SOLVERS: dict[str, type[Solver]] = {cls.name: cls for cls in (Picard, Damped, Anderson)}


def make_solver(name: str, **options: object) -> Solver:
    """Build a solver from its name and its options.

    Args:
        name: A key of `SOLVERS`.
        options: Fields of that solver; every name is checked.

    Raises:
        ArgumentError: Unknown solver, unknown option (both name the nearest spelling), or a value out of range.

    Example:
        >>> make_solver("damped", damping=0.3)
        Damped(damping=0.3)
    """
    if name not in SOLVERS:
        raise ArgumentError(f"Unknown solver {name!r}. Known solvers: {', '.join(SOLVERS)}.{_hint(name, SOLVERS)}")
    cls = SOLVERS[name]
    allowed = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for option in options:
        if option not in allowed:
            known = f"Its options: {', '.join(allowed)}." if allowed else "It has no options."
            raise ArgumentError(f"The solver {name} has no option {option!r}. {known}{_hint(option, allowed)}")
    return cls(**options)


def as_solver(solver: str | Solver) -> Solver:
    """Return a solver given by name or as an object.

    Example:
        >>> as_solver("picard")
        Picard()
    """
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str):
        return make_solver(solver)
    raise ArgumentError(f"`solver` must be a name ({', '.join(SOLVERS)}) or a Solver. Got {type(solver).__name__}.")


def _hint(name: str, allowed: object) -> str:
    near = nearest_name(name, list(allowed))  # type: ignore[call-overload]
    return f" Did you mean {near!r}?" if near else ""
