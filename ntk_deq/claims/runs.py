"""The run of a claim and what its `given` scalars are chosen for: from the file's words to `Run` and `Choose`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ntk_deq.claims.check import Key
from ntk_deq.claims.claim import Choose, Claim
from ntk_deq.claims.schema import ClaimModel
from ntk_deq.errors import ArgumentError, ExpressionError
from ntk_deq.language.declaration import Role, Setting
from ntk_deq.language.domain import Free
from ntk_deq.language.families import defined
from ntk_deq.language.loss import ForeignLossError, declared_loss
from ntk_deq.language.parser import parse
from ntk_deq.language.ranges import Ranges
from ntk_deq.language.recursion import RecursionFault, base_name, entries_in, ordered, recursions_in, recursive_names
from ntk_deq.language.rows import rowwise_model
from ntk_deq.language.run import LOSS, PATH_LENGTH, RUN_KINDS, KeyValue, Run, RunKind
from ntk_deq.language.tree import Formula, Kind, sort_definitions
from ntk_deq.language.types import SCALAR

_NO_NUMBERS = frozenset({".nan", ".inf", "-.inf", "+.inf"})  # what YAML calls numbers and the language does not


def start_keys(model: ClaimModel) -> tuple[Key, ...]:
    """Return section and name of each formula that is fixed before the run starts, in the order of the reference."""
    kind = kind_of(model)
    names = () if kind is None else kind.formulas
    keys = [("run", name) for name in names if getattr(model.run, name) is not None]
    keys += [("choose", name) for name in ("maximize", "minimize") if getattr(model.choose, name, None) is not None]
    return tuple(keys)


def kind_of(model: ClaimModel) -> RunKind | None:
    """Return what the run of a claim does, or None where it has none."""
    return None if model.run is None else RUN_KINDS[model.run.method]


def unfit(setting: Setting, kind: RunKind) -> str | None:
    """Return why a run cannot be made in a setting, or None where it can.

    A run needs a model; training needs parameters, and a loss that the model defines.
    """
    model = setting.model
    if kind.written:
        return None
    if model is None:
        return f"`run` needs a model; setting {setting.name} has none."
    if model.has_families:  # what it is for each depth is looked at there
        return None
    if not kind.trains:
        return None if model.has_equilibrium else f"{kind} needs an equilibrium; model {model.name} has none."
    if not model.names(Role.PARAMETER):
        return f"{kind} needs parameters; model {model.name} has none."
    if LOSS not in model.definitions:
        return f"{kind} needs the loss `{LOSS}`; model {model.name} does not define it."
    if PATH_LENGTH in setting.variable_types() or PATH_LENGTH in setting.sizes:
        return f"`{PATH_LENGTH}` is the length of the trajectory here; rename what setting {setting.name} calls so."
    try:
        declared_loss(model)
    except ForeignLossError as error:
        return f"{kind}: {error}"
    if not model.implementation and model.has_equilibrium:
        try:
            rowwise_model(model)
        except ArgumentError as error:
            return f"{kind}: {error}"
    return None


def recursive_order(
    read: Mapping[str, Mapping[str, Formula]], settings: Sequence[Setting], steps: int
) -> tuple[list[str], list[tuple[Key, ExpressionError]]]:
    """Return the definitions of a claim with recursions, each after those it uses, and what is wrong with which.

    Args:
        read: Its formulas by section and name.
        settings: Its settings.
        steps: The budget of its run.
    """
    let = read["let"]
    sizes = {letter for setting in settings for letter in setting.sizes}
    names = recursive_names(let, sizes)

    def fault(key: str, message: str, hint: str | None = None) -> list[tuple[Key, ExpressionError]]:
        return [(("let", key), ExpressionError(f"`let.{key}`: {message}", (0, 0), hint))]

    if not names:
        message = "`run` of method recursion takes its steps from `let`, and nothing there has an index."
        missing = ExpressionError(message, (0, 0), "write z[0]: z0 and z[k+1]: ...")
        return list(let), [(("run", ""), missing)]
    taken = sizes.union(*({*setting.variable_types()} for setting in settings), let)
    try:
        for entry in entries_in(let, names):
            if entry.letter in taken:
                return list(let), fault(
                    entry.key, f"`{entry.letter}` has a meaning already and cannot be a step index."
                )
        if not any(entry.reach is not None or entry.step is not None for entry in map(defined, let)):
            recursions_in(let, names)
    except RecursionFault as found:
        if found.span == (0, 0):
            return list(let), fault(found.key, found.message, found.hint)
        return list(let), [(("let", found.key), found)]
    order, left = ordered(let, names)
    plain, cycle = sort_definitions({key: let[key] for key in left if base_name(key, names) not in names})
    if cycle:
        return [*order, *plain], [(("let", cycle[0]), defined_by_itself(cycle))]
    if left:
        return [*order, *left], fault(
            left[0], "a start is missing: it rests on names that rest on it.", "give one of them a start"
        )
    return order, list(_beyond(read, steps))


def steps_without_run(let: Mapping[str, Formula], settings: Sequence[Setting]) -> Iterator[tuple[Key, ExpressionError]]:
    """Yield the first definition that gives a step, in a claim whose run takes none from its definitions."""
    names = recursive_names(let, {letter for setting in settings for letter in setting.sizes})
    key = next((key for key in let if defined(key).step is not None or defined(key).name in names), None)
    if key is not None:
        message = f"`let.{key}` gives a step of a recursion, and the claim has none."
        yield ("let", key), ExpressionError(message, (0, 0), "add `run: {method: recursion, steps: N}`")


def defined_by_itself(cycle: Sequence[str], section: str = "let") -> ExpressionError:
    """Return the error that definitions rest on each other in a circle."""
    return ExpressionError(f"`{section}.{cycle[0]}` is defined by itself: {' -> '.join(cycle)}.", (0, 0))


def _beyond(read: Mapping[str, Mapping[str, Formula]], steps: int) -> Iterator[tuple[Key, ExpressionError]]:
    """Yield where a recursion is asked for a step, by its number, that comes after the last one."""
    given = {defined(key).name for key in read["let"] if "[" in key}
    for section, formulas in read.items():
        for name, formula in formulas.items():
            for node in formula.expr.walk():
                number = node.args[-1].value if node.kind is Kind.INDEX and node.name in given else None
                if number is not None and number > steps:
                    message = f"`{node.name}` is asked for beyond the {steps} steps of the recursion."
                    yield (section, name), ExpressionError(message, (node.span.start, node.span.stop))
                    break


def wrong_sign(key: Key, kind: RunKind | None, text: str) -> str | None:
    """Return what is wrong with a step or a horizon that is no number > 0 whatever its names stand for.

    Args:
        key: Section and name.
        kind: What the run does.
        text: The formula as written.

    Raises:
        ExpressionError: It is no formula.

    Example:
        >>> wrong_sign(("run", "step"), RUN_KINDS["gradient-descent"], "-0.1")
        '`run.step` of gradient-descent must be > 0. Got -0.1.'
        >>> wrong_sign(("run", "step"), RUN_KINDS["gradient-descent"], "eta/2") is None
        True
    """
    section, name = key
    if section != "run":
        return None
    if text.strip().lower() in _NO_NUMBERS or not Ranges({}, {}).of(parse(text)).high > 0:
        return f"`run.{name}` of {kind} must be > 0. Got {text.strip()}."
    return None


def build_run(model: ClaimModel, typed: Mapping[Key, Formula]) -> Run | None:
    """Return the run that a claim describes, or None.

    Args:
        model: The claim as written.
        typed: Its formulas, `run.step` and `run.horizon` among them.
    """
    run, kind = model.run, kind_of(model)
    if run is None or kind is None:
        return None
    values: dict[str, Any] = {}
    for key in kind.keys:
        value = typed.get(("run", key.name)) if key.value is KeyValue.FORMULA else getattr(run, key.name)
        # The shortest decimal of the float is the number as written.
        values[key.name] = Fraction(str(value)) if key.value is KeyValue.PART else value
    return Run(kind, **values)


def build_choose(model: ClaimModel, typed: Mapping[Key, Formula]) -> Choose | None:
    """Return what the `given` scalars of a claim are chosen for, or None."""
    if model.choose is None:
        return None
    name = "minimize" if model.choose.maximize is None else "maximize"
    objective = typed.get(("choose", name))
    return None if objective is None else Choose(objective, maximize=name == "maximize", aims=model.choose.aims)


def choice_faults(
    kind: RunKind | None, free: Sequence[Mapping[str, Free]], hypotheses: Mapping[str, Formula]
) -> Iterator[str]:
    """Yield what stands in the way of choosing constants.

    Args:
        kind: What the run does, or None.
        free: For each setting, the variables over which it and the claim quantify.
        hypotheses: The hypotheses.
    """
    late = [name for name, f in hypotheses.items() if any(node.kind is Kind.FOR_ALL for node in f.expr.walk())]
    if late and len(late) == len(hypotheses) and kind is not None and kind.trains:
        names = ", ".join(f"`{name}`" for name in late)
        yield (
            f"`choose` keeps the hypotheses that are known at the start, and {names} speaks of every step of "
            "the run. Leave `choose` out, or write a hypothesis about the start."
        )
    if not all(any(variable.type == SCALAR for variable in variables.values()) for variables in free):
        yield "`choose` chooses the scalars of `given` and of `domain`, and this claim has none."


def start_formulas(claim: Claim) -> dict[Key, Formula]:
    """Return the formulas of a claim that are fixed before its run starts: step, horizon, what is chosen for."""
    known = {} if claim.run is None else claim.run.formulas
    found: dict[Key, Formula] = {("run", name): formula for name, formula in known.items()}
    if claim.choose is not None:
        found["choose", "maximize" if claim.choose.maximize else "minimize"] = claim.choose.objective
    return found


def with_start_formulas(claim: Claim, formulas: Mapping[Key, Formula]) -> Claim:
    """Return a claim with other formulas in place of those of `start_formulas`, as far as it has them."""
    run, choose = claim.run, claim.choose
    if run is not None:
        changed: dict[str, Any] = {name: formulas.get(("run", name)) for name in run.formulas}
        run = replace(run, **changed)
    if choose is not None:
        choose = replace(choose, objective=formulas["choose", "maximize" if choose.maximize else "minimize"])
    return replace(claim, run=run, choose=choose)
