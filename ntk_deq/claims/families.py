"""Claims with families: typed while their depth is open, and then once more for each depth that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ntk_deq.claims.check import Key, check_formulas
from ntk_deq.claims.claim import Claim, Depth
from ntk_deq.claims.depths import DepthError, at_depth, depths_of, written_out
from ntk_deq.claims.open_depth import check_families
from ntk_deq.claims.runs import unfit
from ntk_deq.errors import ExpressionError
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Free
from ntk_deq.language.recursion import entry_of, recursive_names
from ntk_deq.language.run import RunKind
from ntk_deq.language.tree import RANGED, Formula


def has_families(
    settings: tuple[Setting, ...],
    given: Mapping[str, Free],
    formulas: Mapping[Key, Formula],
    kind: RunKind | None,
) -> bool:
    """Whether a claim speaks of members of families, so that it is judged for each of its depths."""
    models = (setting.model for setting in settings)
    if any(model is not None and model.has_families for model in models):
        return True
    if any(setting.families() for setting in settings) or any(free.over is not None for free in given.values()):
        return True
    keys = [name for section, name in formulas if section == "let" and "[" in name]
    sizes = {letter for setting in settings for letter in setting.sizes}
    recursive = recursive_names(keys, sizes) if kind is not None and kind.written else frozenset[str]()
    if any(entry_of(key, recursive).index is not None for key in keys):
        return True
    return any(node.kind in RANGED for formula in formulas.values() for node in formula.expr.walk())


@dataclass
class TypedFamilies:
    """The formulas of a claim with families, typed with its depth open.

    Attributes:
        typed: By section and name, each with the types that it has in the first setting.
        errors: What is wrong, with the formula, or `("setting", NAME)` for an entry of a setting.
        depths: For what the claim is judged.
    """

    typed: dict[Key, Formula]
    errors: list[tuple[Key, ExpressionError]] = field(default_factory=list)
    depths: list[Depth] = field(default_factory=list)


def typed_families(
    formulas: Mapping[Key, Formula],
    settings: Sequence[Setting],
    given: Mapping[str, Free],
    *,
    kind: RunKind | None,
    skip: Set[str] = frozenset(),
) -> TypedFamilies:
    """Type every formula in every setting with its depth open, then written out for each depth.

    The first error of a formula is kept. What is wrong while the depth is open is not looked at any further.

    Args:
        formulas: By section and name.
        settings: The settings.
        given: The claim's own free variables.
        kind: What the claim's run does, or None.
        skip: Names whose definition is broken.
    """
    found = TypedFamilies(dict(formulas))
    wrong: dict[Key, ExpressionError] = {}
    for setting in settings:
        suffix = f" (in setting {setting.name})" if len(settings) > 1 else ""
        checked = check_families(formulas, setting, given, kind=kind, skip=skip)
        for key, error in checked.errors.items():
            wrong.setdefault(key, ExpressionError(error.message + suffix, error.span, error.hint))
        typed = {key: replace(formulas[key], expr=expr) for key, expr in checked.typed.items()}
        if setting is settings[0]:
            found.typed |= typed
        if wrong or skip:
            continue
        try:
            found.depths += depths_of(setting, given, formulas)
        except ExpressionError as error:
            wrong["setting", setting.name] = error
            continue
        for depth in (depth for depth in found.depths if depth.setting == setting.name):
            _check_depth(typed, setting, given, depth, kind, suffix, wrong)
    found.errors = list(wrong.items())
    return found


def _check_depth(
    typed: Mapping[Key, Formula],
    setting: Setting,
    given: Mapping[str, Free],
    depth: Depth,
    kind: RunKind | None,
    suffix: str,
    wrong: dict[Key, ExpressionError],
) -> None:
    """Type a claim for one depth, and keep the first error of each formula as written."""
    at = f" at {depth}" * bool(depth.letters) + suffix
    try:
        parts = written_out(setting, given, typed, dict(depth.letters))
    except DepthError as error:
        if error.where:
            at = f"{at}, {error.where}" if at else f" at {error.where}"
        wrong.setdefault(error.key, ExpressionError(_placed(error.message, at), error.span, error.hint))
        return
    unfitting = None if kind is None else unfit(parts.setting, kind)
    if unfitting is not None:
        wrong.setdefault(("run", "method"), ExpressionError(_placed(unfitting, at), (0, 0)))
    if parts.cycle:
        key = parts.origins["let", parts.cycle[0]]
        message = f"`{parts.cycle[0]}` is defined by itself{at}: {' -> '.join(parts.cycle)}."
        wrong.setdefault(key, ExpressionError(message, (0, 0)))
        return
    for key, fault in check_formulas(parts.formulas, parts.setting, parts.given, kind=kind).errors.items():
        origin = parts.origins[key]
        member = f", {key[1]}" * (key != origin)
        wrong.setdefault(origin, ExpressionError(_placed(fault.message, at + member), fault.span, fault.hint))


def _placed(message: str, at: str) -> str:
    """Return a message that ends with where it arises."""
    return f"{message.removesuffix('.')}{at}." if at else message


def claim_for(claim: Claim, setting: str, sizes: Mapping[str, int]) -> Claim:
    """Return the claim that an instance belongs to: of a claim with families the one of its depth.

    Args:
        claim: The claim.
        setting: Name of the instance's setting.
        sizes: The instance's sizes.

    Raises:
        LookupError: The claim has no such depth.

    """
    if not claim.depths:
        return claim
    for depth in claim.depths:
        if depth.setting == setting and all(sizes.get(letter) == value for letter, value in depth.letters):
            return at_depth(claim, depth)
    raise LookupError(setting)
