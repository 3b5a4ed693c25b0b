"""A claim as the data of a claim file of its own, a fingerprint of what it states, and how two claims differ.

The lines of a claim as the report shows them, typeset.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.describe import choose_words, order_words, run_words
from ntk_deq.claims.functions import model_functions
from ntk_deq.errors import ExpressionError
from ntk_deq.files.yaml import NumberText
from ntk_deq.language.application import Functions
from ntk_deq.language.arguments import Definition
from ntk_deq.language.declaration import Draw, ImageData, ModelSignature, Setting, model_names
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.expansion import unused_name
from ntk_deq.language.format import format_expr, unshaped
from ntk_deq.language.function_domains import ARGUMENT
from ntk_deq.language.notation.latex import latex
from ntk_deq.language.notation.mathml import exists_mathml, to_mathml
from ntk_deq.language.parser import parse
from ntk_deq.language.run import KeyValue, Run
from ntk_deq.language.tree import Formula, names_in
from ntk_deq.language.types import Reach, SizeRange, Type


@dataclass(frozen=True)
class StatementLine:
    """One line of a claim as the report shows it; `section` is given, member, let, assume or conclude."""

    section: str
    name: str
    text: str
    mathml: str
    latex: str


_SHOWN = 120  # characters of a formula that a difference quotes


def claim_file(claim: Claim) -> dict[str, Any]:
    """Return a claim file that states one claim, complete: nothing inherited, nothing included.

    Args:
        claim: The claim. Data files of its settings are named without their folders.
    """
    if claim.origin is not None:  # the claim with families says which of its depths there are
        claim = claim.origin
    entry: dict[str, Any] = {"id": claim.id}
    for key, text in (("title", claim.title), ("where", claim.where)):
        if text:
            entry[key] = text
    entry["setting"] = [setting.name for setting in claim.settings]
    claim = claim.stated
    own = set().union(*(setting.functions for setting in claim.settings))
    sets = {name: domain.text for name, domain in claim.members.items() if name not in own}
    if claim.given or sets:
        entry["given"] = {**{name: _quantified(free) for name, free in claim.given.items()}, **sets}
    if claim.exists:
        entry["exists"] = {name: _quantified(free) for name, free in claim.exists.items()}
    if claim.uniform:
        entry["uniform"] = sorted(claim.uniform)
    first = claim.variants[0].functions if claim.variants else {}
    called = Functions.of({**model_functions(claim.settings)[0], **claim.functions, **first})
    for section, formulas in _sections(claim):
        texts = {name: _written(formula, called) for name, formula in formulas.items()}
        if section == "let":
            texts |= {key: function.text for key, function in claim.functions.items()}
        if texts:
            entry[section] = texts
    if claim.run is not None:
        entry["run"] = _run(claim.run)
    if claim.choose is not None:
        sense = "maximize" if claim.choose.maximize else "minimize"
        entry["choose"] = {sense: _written(claim.choose.objective)}
    entry["expect"] = claim.expect.value
    data: dict[str, Any] = {"suite": claim.id}
    if claim.source:
        data["source"] = {"title": "", **claim.source}
    systems = [setting.model for setting in claim.settings if setting.model is not None]
    if declared := {model.name: system_data(model) for model in systems if model.name not in model_names()}:
        data["systems"] = declared
    data["settings"] = {setting.name: _setting(setting) for setting in claim.settings}
    data["claims"] = [entry]
    return data


def system_data(signature: ModelSignature) -> dict[str, object]:
    """Return the entry of `systems` that declares a model.

    Args:
        signature: A model without a class.
    """
    variables = {}
    for variable in signature.variables:
        shape = f"[{', '.join(variable.shape)}]" if variable.shape else ""
        shape += "" if variable.over is None else f" for {variable.over.text}"
        entry = {"shape": shape.strip()} if shape else {}
        entry |= {"role": variable.role.value, "domain": variable.domain}
        variables[variable.name] = entry | ({"description": variable.description} if variable.description else {})
    data: dict[str, object] = {"title": signature.title}
    data |= {"reference": signature.reference} if signature.reference else {}
    data["variables"] = variables
    if signature.has_equilibrium:
        data["equilibrium"] = {signature.state: signature.map}
        if signature.state_shape:
            data["shape"] = f"[{', '.join(signature.state_shape)}]"
        if signature.monotone:
            data["monotone"] = signature.monotone
        elif not signature.local:
            data["contraction"] = signature.contraction
    if signature.definitions or signature.functions:
        data["define"] = {**signature.functions, **signature.definitions}
    return data


def _sections(claim: Claim) -> list[tuple[str, dict[str, Formula]]]:
    """Return the sections of formulas of a claim as it is stated, in the order in which they are written."""
    return [("let", claim.let), ("assume", claim.assume), ("witness", claim.witness), ("conclude", claim.conclude)]


def _run(run: Run) -> dict[str, Any]:
    data: dict[str, Any] = {"method": run.kind.name, "steps": run.steps}
    data |= {name: _written(formula) for name, formula in run.formulas.items()}
    for key in run.kind.keys:
        value = getattr(run, key.name)
        if key.value is KeyValue.PART:
            data[key.name] = NumberText(repr(float(value)))
        elif key.value is KeyValue.FLAG and value != key.default:
            data[key.name] = value
    return data


def _setting(setting: Setting) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if setting.model is not None:
        data["model"] = setting.model.name
    if setting.sizes:
        data["sizes"] = {letter: _size(size) for letter, size in setting.sizes.items()}
    own = set() if setting.model is None else set(setting.model.names())
    if setting.free:
        data["domain"] = {name: _quantified(free, typed=name not in own) for name, free in setting.free.items()}
    if setting.functions:
        data["domain"] = {**data.get("domain", {}), **{name: domain.text for name, domain in setting.functions.items()}}
    if setting.draws:
        data["init"] = {name: draw.text for name, draw in setting.draws.items()}
    if setting.images is not None:
        data["images"] = _images(setting.images)
    return data


def _size(size: SizeRange) -> int | str:
    if size.over is None and size.fixed:
        return size.low
    return (str(size.low) if size.fixed else f"{size.low}..{size.high}") + _members(size.over)


def _quantified(free: Free, *, typed: bool = True) -> str:
    return (free.domain.text or domain_text(free.domain)) + (_shape(free.type) if typed else "") + _members(free.over)


def _members(over: Reach | None) -> str:
    return "" if over is None else f" for {over.text}"


def _shape(kind: Type) -> str:
    return f"[{', '.join(map(str, kind.sizes))}]" if kind.sizes else ""


def _images(images: ImageData) -> dict[str, Any]:
    data: dict[str, Any] = {"source": images.source}
    for key, path in (("images", images.images), ("labels", images.labels)):
        if path is not None:
            data[key] = Path(path).name
    data["classes"] = list(images.classes)
    for key, number in (("count", images.count), ("side", images.side)):
        if number is not None:
            data[key] = number
    return data | {"unit_norm": images.unit_norm, "split": images.split}


def domain_text(domain: Domain) -> str:
    """Return a domain in one spelling, whatever its text.

    Example:
        >>> from fractions import Fraction
        >>> domain_text(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1, 2), low_open=True))
        '(0, 1/2]'
    """
    if domain.kind is DomainKind.INTERVAL:
        low = "-inf" if domain.low is None else str(domain.low)
        high = "inf" if domain.high is None else str(domain.high)
        return f"{'(' if domain.low_open else '['}{low}, {high}{')' if domain.high_open else ']'}"
    if domain.kind is DomainKind.INTEGER and domain.low is not None:
        return f"integer {domain.low}..{domain.high}"
    return domain.kind.value


def parts(claim: Claim) -> dict[str, str]:
    """Return what a claim states, part by part, in one spelling: `assume.bounded` to `norm(A) <= M`.

    Titles, tags, notes and the expected verdict are no part of it; the formulas of its models are.
    """
    claim = claim.stated
    found = {f"given.{name}": _ranging(v) for name, v in claim.given.items()}
    found |= {f"given.{name}": domain.text for name, domain in claim.members.items()}
    found |= {f"exists.{name}": _ranging(v) for name, v in claim.exists.items()}
    found |= {"uniform": ", ".join(sorted(claim.uniform))} if claim.uniform else {}
    for section, formulas in _sections(claim):
        found |= {f"{section}.{name}": _spelled(formula) for name, formula in formulas.items()}
    run = {"method": "none"} if claim.run is None else _run(claim.run)
    found["run"] = ", ".join([str(run.pop("method")), *(f"{key} {value}" for key, value in run.items())])
    for setting in claim.settings:
        found |= {f"setting {setting.name}, {key}": text for key, text in _setting_parts(setting).items()}
    return found


def _written(formula: Formula, called: Functions | None = None) -> str:
    """Return a formula as its author wrote it, or the spelling of its tree where that was changed since."""
    spelled = _spelled(formula)
    try:
        tree = (called or Functions()).written_out(parse(formula.text))
        return formula.text if format_expr(unshaped(tree)) == format_expr(unshaped(formula.expr)) else spelled
    except ExpressionError:
        return spelled


def _spelled(formula: Formula) -> str:
    return format_expr(formula.expr)


def _setting_parts(setting: Setting) -> dict[str, str]:
    sizes = sorted(setting.sizes.items())
    found = {"sizes": ", ".join(f"{k} = {s.low}..{s.high}{_members(s.over)}" for k, s in sizes)}
    found |= {name: _ranging(v) for name, v in setting.free.items()}
    found |= {name: _drawn(draw) for name, draw in setting.draws.items()}
    if setting.images is not None:
        found["images"] = json.dumps(_images(setting.images), sort_keys=True)
    if setting.model is not None:
        model = setting.model
        found["model"] = f"{model.name}: {model.state} = {model.map}" if model.has_equilibrium else model.name
        found |= {"model's modulus": model.monotone} if model.monotone else {}
        found |= {f"model's {name}": text for name, text in model.definitions.items()}
    return found


def _ranging(free: Free) -> str:
    return domain_text(free.domain) + _shape(free.type) + _members(free.over)


def _drawn(draw: Draw) -> str:
    return f"~ {format_expr(draw.distribution)}{_shape(draw.type)}{_members(draw.over)}"


def fingerprint(claim: Claim) -> str:
    """Return a hash of what a claim states; the same statement in another spelling or file has the same one."""
    return hashlib.sha256(json.dumps(parts(claim), sort_keys=True).encode()).hexdigest()


def differences(recorded: Claim, now: Claim) -> list[str]:
    """Return in words every part in which two claims state different things.

    Args:
        recorded: The claim as it was.
        now: The claim as it is.
    """
    before, after = parts(recorded), parts(now)
    return [
        f"{key}: {_quoted(before, key)} then, {_quoted(after, key)} now"
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    ]


def _quoted(found: Mapping[str, str], key: str) -> str:
    if key not in found:
        return "nothing"
    text = found[key]
    return f"`{text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}`"


def statement_lines(claim: Claim, tried: Claim | None = None) -> tuple[StatementLine, ...]:
    """Return the given, choose, let, assume, run, exists and conclude lines; formulas also as MathML and LaTeX.

    Args:
        claim: The claim.
        tried: Of a claim over sets of functions the variant whose members its formulas are shown with, each on a line
            of its own (section `member`); None: the first.
    """
    claim, tried = claim.stated, None if tried is None else tried.stated
    lines = [StatementLine("given", name, domain.text, "", "") for name, domain in claim.members.items()]
    lines += [StatementLine("given", free.name, free.domain.text, "", "") for free in claim.given.values()]
    lines += [_member(found) for key, found in (tried or claim).functions.items() if key not in claim.functions]
    chosen = choose_words(claim)
    if chosen is not None:
        lines.append(StatementLine("choose", "constants", chosen, "", ""))
    lines += [StatementLine("let", key, found.text, "", "") for key, found in claim.functions.items()]
    for section, formulas in (("let", claim.let), ("assume", claim.assume)):
        shown = formulas if tried is None else getattr(tried, section)
        lines += [_line(section, shown[name]) for name in formulas]
    if claim.run is not None:
        lines.append(StatementLine("run", claim.run.kind.name, run_words(claim.run), "", ""))
    for free in claim.exists.values():
        mathml = exists_mathml(free)
        lines.append(StatementLine("exists", free.name, f"∃ {free.name} in {_quantified(free)}", mathml, latex(mathml)))
    if claim.uniform:
        lines.append(StatementLine("exists", "order", order_words(claim) or "", "", ""))
    lines += [_line("witness", formula) for formula in claim.witness.values()]
    return (*lines, *(_line("conclude", formula) for formula in (tried or claim).conclude.values()))


def _member(found: Definition) -> StatementLine:
    own = unused_name("u", names_in(found.body))
    return StatementLine("member", f"{found.name}({own})", format_expr(found.body).replace(ARGUMENT, own), "", "")


def _line(section: str, formula: Formula) -> StatementLine:
    mathml = to_mathml(formula.expr)
    return StatementLine(section, formula.name, formula.text, mathml, latex(mathml))
