"""The run of a claim and what its `given` scalars are chosen for: from the file's words to `Run` and `Choose`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from ntk_deq.claims.check import Key, parsed
from ntk_deq.claims.claim import Choose, Claim
from ntk_deq.claims.schema import ClaimModel
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import Role
from ntk_deq.language.domain import Free
from ntk_deq.language.loss import ForeignLossError, declared_loss
from ntk_deq.language.ranges import Ranges
from ntk_deq.language.rows import rowwise_model
from ntk_deq.language.run import LOSS, PATH_LENGTH, Method, Run
from ntk_deq.language.setting import Setting
from ntk_deq.language.tree import Formula
from ntk_deq.language.types import SCALAR

_NO_NUMBERS = frozenset({".nan", ".inf", "-.inf", "+.inf"})  # what YAML calls numbers and the language does not


def start_keys(model: ClaimModel) -> tuple[Key, ...]:
    """Return section and name of each formula that is fixed before the run starts, in the order of the reference."""
    keys = [("run", name) for name in ("step", "horizon") if getattr(model.run, name, None) is not None]
    keys += [("choose", name) for name in ("maximize", "minimize") if getattr(model.choose, name, None) is not None]
    return tuple(keys)


def method_of(model: ClaimModel) -> Method | None:
    """Return what the run of a claim does, or None where it has none."""
    return None if model.run is None else Method(model.run.method)


def unfit(setting: Setting, method: Method) -> str | None:
    """Return why a run cannot be made in a setting, or None where it can.

    A run needs a model; training needs parameters, and a loss that the model defines.
    """
    model = setting.model
    if model is None:
        return f"`run` needs a model; setting {setting.name} has none."
    if not method.trains:
        return None if model.has_equilibrium else f"{method} needs an equilibrium; model {model.name} has none."
    if not model.names(Role.PARAMETER):
        return f"{method} needs parameters; model {model.name} has none."
    if LOSS not in model.definitions:
        return f"{method} needs the loss `{LOSS}`; model {model.name} does not define it."
    if PATH_LENGTH in setting.variable_types() or PATH_LENGTH in setting.sizes:
        return f"`{PATH_LENGTH}` is the length of the trajectory here; rename what setting {setting.name} calls so."
    try:
        declared_loss(model)
    except ForeignLossError as error:
        return f"{method}: {error}"
    if not model.implementation:
        try:
            rowwise_model(model)
        except ArgumentError as error:
            return f"{method}: {error}"
    return None


def wrong_sign(key: Key, method: Method | None, text: str) -> str | None:
    """Return what is wrong with a step or a horizon that is no number > 0 whatever its names stand for.

    Args:
        key: Section and name.
        method: The run's method.
        text: The formula as written.

    Raises:
        ExpressionError: It is no formula.

    Example:
        >>> wrong_sign(("run", "step"), Method.GRADIENT_DESCENT, "-0.1")
        '`run.step` of gradient-descent must be > 0. Got -0.1.'
        >>> wrong_sign(("run", "step"), Method.GRADIENT_DESCENT, "eta/2") is None
        True
    """
    section, name = key
    if section != "run":
        return None
    if text.strip().lower() in _NO_NUMBERS or not Ranges({}, {}).of(parsed(text)).high > 0:
        return f"`run.{name}` of {method} must be > 0. Got {text.strip()}."
    return None


def build_run(model: ClaimModel, typed: Mapping[Key, Formula]) -> Run | None:
    """Return the run that a claim describes, or None.

    Args:
        model: The claim as written.
        typed: Its formulas, `run.step` and `run.horizon` among them.
    """
    run, method = model.run, method_of(model)
    if run is None or method is None:
        return None
    if run.method == "fixed-point":
        return Run(method, run.steps)
    # The shortest decimal of the float is the number as written.
    step, horizon = typed.get(("run", "step")), typed.get(("run", "horizon"))
    beyond = getattr(run, "beyond", True)
    return Run(method, run.steps, step=step, until=Fraction(str(run.until)), horizon=horizon, beyond=beyond)


def build_choose(model: ClaimModel, typed: Mapping[Key, Formula]) -> Choose | None:
    """Return what the `given` scalars of a claim are chosen for, or None."""
    if model.choose is None:
        return None
    name = "minimize" if model.choose.maximize is None else "maximize"
    objective = typed.get(("choose", name))
    return None if objective is None else Choose(objective, maximize=name == "maximize", aims=model.choose.aims)


def can_choose(given: Mapping[str, Free]) -> bool:
    """Whether there is a scalar to choose."""
    return any(free.type == SCALAR for free in given.values())


def start_formulas(claim: Claim) -> dict[Key, Formula]:
    """Return the formulas of a claim that are fixed before its run starts: step, horizon, what is chosen for."""
    found: dict[Key, Formula] = {}
    if claim.run is not None and claim.run.step is not None:
        found["run", "step"] = claim.run.step
    if claim.run is not None and claim.run.horizon is not None:
        found["run", "horizon"] = claim.run.horizon
    if claim.choose is not None:
        found["choose", "maximize" if claim.choose.maximize else "minimize"] = claim.choose.objective
    return found


def with_start_formulas(claim: Claim, formulas: Mapping[Key, Formula]) -> Claim:
    """Return a claim with other formulas in place of those of `start_formulas`, as far as it has them."""
    run, choose = claim.run, claim.choose
    if run is not None:
        step, horizon = formulas.get(("run", "step")), formulas.get(("run", "horizon"))
        run = replace(run, step=run.step and step, horizon=run.horizon and horizon)
    if choose is not None:
        choose = replace(choose, objective=formulas["choose", "maximize" if choose.maximize else "minimize"])
    return replace(claim, run=run, choose=choose)
