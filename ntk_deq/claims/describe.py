"""Words of `verify-claims check`: systems with types and certificates; runs, choices, sizes, orders, depths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ntk_deq.claims.check import environment
from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.depths import depths_of, written_out
from ntk_deq.claims.open_depth import typed_definitions
from ntk_deq.errors import ArgumentError, ExpressionError
from ntk_deq.language.declaration import ModelSignature, Role, Setting, Variable
from ntk_deq.language.loss import PREDICTIONS, ForeignLossError, declared_loss
from ntk_deq.language.rows import has_samples, rowwise_model
from ntk_deq.language.run import LOSS, Run
from ntk_deq.language.shapes import Shapes
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import ONE, SCALAR, Reach, Size, SizeRange, Type


@dataclass(frozen=True)
class SystemDescription:
    """A model as `check` shows it.

    Attributes:
        name: Its name.
        title: One line for people; empty where it says no more than the equilibrium.
        sizes: Its size letters.
        variables: Name, type, and role with domain and description of each variable.
        equilibrium: Name, type and equation of the state, or None.
        certificate: What shows that the equilibrium exists, in words.
        definitions: Name, type and formula of each definition.
        kernel: What the tangent kernel consists of, in words; empty where there are no samples or no predictions.
    """

    name: str
    title: str
    sizes: str
    variables: tuple[tuple[str, str, str], ...]
    equilibrium: tuple[str, str, str] | None
    certificate: str
    definitions: tuple[tuple[str, str, str], ...]
    kernel: str = ""


def describe_systems(claims: Iterable[Claim | IllFormed]) -> tuple[SystemDescription, ...]:
    """Return the systems that claims speak of, each once, in the form that `check` prints.

    Args:
        claims: The claims; those that are ill-formed bring none.
    """
    known: dict[ModelSignature, Setting] = {}
    for claim in claims:
        for setting in claim.settings if isinstance(claim, Claim) else ():
            if setting.model is not None:
                known.setdefault(setting.model, setting)
    return tuple(_system(model, _types(setting), _kernel(model, setting)) for model, setting in known.items())


def _kernel(model: ModelSignature, setting: Setting) -> str:
    """Return the words about a model's kernel; of a system with families at the largest depth of a setting."""
    if not model.has_families:
        return kernel_words(model)
    try:
        depth = depths_of(setting, {}, {})[-1]
        written = written_out(setting, {}, {}, dict(depth.letters)).setting.model
    except ExpressionError:  # which claims about it say
        return ""
    words = "" if written is None else kernel_words(written)
    return f"at {depth}: {words}" if words else ""


def _types(setting: Setting) -> dict[str, Type]:
    """Return the type of every name of a setting and its model, of definitions of members by their entries."""
    found = environment(setting)
    if setting.model is not None and setting.model.has_families:
        found |= {name: expr.type for (_, name), expr in typed_definitions(setting).typed.items() if expr.type}
    return found


def _system(model: ModelSignature, types: Mapping[str, Type], kernel: str) -> SystemDescription:
    def shown(name: str) -> str:
        return "scalar" if Shapes({}).is_scalar(types[name]) else str(types[name])

    equation = f"{model.state} = {one_line(model.map)}"
    state = (model.state, str(types[model.state]), equation) if model.has_equilibrium else None
    return SystemDescription(
        model.name,
        "" if model.title == equation else one_line(model.title),
        ", ".join(model.sizes),
        tuple(
            (member_words(own.name, own.over), str(types[own.name]), _variable_words(own)) for own in model.variables
        ),
        state,
        certificate_words(model),
        (
            *((key, "function", one_line(text)) for key, text in model.functions.items()),
            *((name, shown(name), one_line(text)) for name, text in model.definitions.items()),
        ),
        kernel,
    )


def _variable_words(variable: Variable) -> str:
    domain = "" if variable.domain == "real" else f" in {one_line(variable.domain)}"
    about = f": {one_line(variable.description)}" if variable.description else ""
    over = "" if variable.over is None else f" for {variable.over.text}"
    return f"{variable.role}{domain}{over}{about}"


def certificate_words(model: ModelSignature) -> str:
    """Return in words what shows that a model's equilibrium exists; empty where it has none.

    Args:
        model: The model.
    """
    if not model.has_equilibrium:
        return ""
    if model.monotone:
        return f"monotone: I - W >= {model.monotone}*I for the layer's weight W, certified on each instance"
    if not model.local:
        return f"contraction: {model.contraction} < 1"
    if model.has_families:
        known = "a constant below 1 that is read off the map at each depth"
    else:
        known = f"{model.contraction} < 1, read off the map" if model.contraction else "no constant is read off the map"
    return f"left out: {known}; else a fixed point found from zero that is shown to be the only one near by"


def kernel_words(model: ModelSignature) -> str:
    """Return in words what the tangent kernel of a model consists of; empty where it has no predictions or samples.

    A place where a parameter stands gives every sample one outer product l r', and the block of the parameter is the
    sum over pairs of places j, k of (L_j L_k') .* (R_j R_k').

    Args:
        model: The model.

    Example:
        >>> from ntk_deq.language.declaration import model_signature
        >>> kernel_words(model_signature("linear-implicit"))
        'N x N, a sample in each row of X; blocks of W, U (1 place each in the map), b (1 place in yhat)'
    """
    if model.has_families or PREDICTIONS not in model.definitions or not has_samples(model):
        return ""
    try:
        rows = rowwise_model(model)
        loss = declared_loss(model) if LOSS in model.definitions else None
    except ArgumentError as error:
        return f"not sample by sample: {str(error).rpartition(': ')[2]}"
    except ForeignLossError:
        loss = None
    inputs = model.names(Role.INPUT)[0]
    where = "column" if rows.axes[inputs] else "row"
    counts: dict[str, list[str]] = {}
    for title, expr in (("the map", rows.typed.map), (PREDICTIONS, rows.typed.predictions)):
        own = Counter[str]() if expr is None else _places(expr, rows.typed.definitions, {})
        for name in model.names(Role.PARAMETER):
            if own[name]:
                counts.setdefault(f"{own[name]} {title}", []).append(name)
    blocks = []
    for key, names in counts.items():
        number, _, title = key.partition(" ")
        words = f"{number} place{'s' * (number != '1')}{' each' * (len(names) > 1)} in {title}"
        blocks.append(f"{', '.join(names)} ({words})")
    type_ = rows.typed.predictions.type
    assert type_ is not None
    outputs = [str(part) for part in (type_.rows, type_.cols) if part not in (ONE, Size.letter(rows.letter))]
    size = "*".join([rows.letter, *outputs])
    order = " in the order of vec(yhat)" * bool(outputs)
    text = f"{size} x {size}{order}, a sample in each {where} of {inputs}; blocks of {', '.join(blocks)}"
    beside = sorted(loss.beside) if loss is not None else []
    return f"{text}; {LOSS} reads {', '.join(beside)} beside {PREDICTIONS}" if beside else text


def _places(expr: Expr, definitions: Mapping[str, Expr], known: dict[str, Counter[str]]) -> Counter[str]:
    """Return how often each name stands in a formula with its definitions written out; `known` are those found."""
    found = Counter[str]()
    for node in expr.walk():
        if node.kind is not Kind.NAME:
            continue
        if node.name not in definitions:
            found[node.name] += 1
            continue
        if node.name not in known:
            known[node.name] = _places(definitions[node.name], definitions, known)
        found += known[node.name]
    return found


def run_words(run: Run) -> str:
    """Return a run in words.

    Example:
        >>> from fractions import Fraction
        >>> from ntk_deq.language.run import FIXED_POINT, GRADIENT_FLOW
        >>> run_words(Run(FIXED_POINT, 24))
        'fixed-point, 24 steps'
        >>> run_words(Run(GRADIENT_FLOW, 500, until=Fraction(1, 10**10)))
        'gradient flow, at most 500 steps of the integrator, until L <= 1e-10 L[0]'
    """
    words = [run.kind.title]
    if run.step is not None:
        words.append(f"step {one_line(run.step.text)}")
    words.append(run.kind.budget.format(steps=run.steps))
    if not run.kind.takes("until"):
        return ", ".join(words)
    part = re.sub(r"e-0*", "e-", f"{float(run.until):g}")
    horizon = f" or t = {one_line(run.horizon.text)}" if run.horizon is not None else ""
    ends = "" if run.beyond else ", where it ends"
    return f"{', '.join(words)}{ends}, until {LOSS} <= {part} {LOSS}[0]{horizon}"


def choose_words(claim: Claim) -> str | None:
    """Return what the free scalars of a claim are chosen for in words, or None where they are drawn."""
    if claim.choose is None:
        return None
    free = [*(item for setting in claim.settings for item in setting.free.items()), *claim.given.items()]
    names = ", ".join(dict.fromkeys(name for name, variable in free if variable.type == SCALAR))
    verb = "maximize" if claim.choose.maximize else "minimize"
    return f"{names} to {verb} {one_line(claim.choose.objective.text)}"


def one_line(text: str) -> str:
    """Return a text with every run of white space, line breaks included, as one space."""
    return " ".join(text.split())


def size_words(letter: str, size: SizeRange) -> str:
    """Return a size in words: `N = 1..4`, `n[l] = 1..5 for l in 0..L`."""
    name = member_words(letter, size.over)
    behind = "" if size.over is None else f" for {size.over.text}"
    return f"{name} = {size.low if size.fixed else f'{size.low}..{size.high}'}{behind}"


def member_words(name: str, over: Reach | None) -> str:
    """Return a name, of a family that of a member."""
    return name if over is None else f"{name}[{over.letter}]"


def order_words(claim: Claim) -> str | None:
    """Return the quantifiers of a claim in their order, or None where all of them are `for all`.

    Args:
        claim: The claim.
    """
    if not claim.exists:
        return None
    known = dict.fromkeys(name for s in claim.settings for name in (*s.variable_types(), *s.sizes))
    known |= dict.fromkeys(claim.given)
    first = ", ".join(name for name in known if name not in claim.uniform)
    last = ", ".join(name for name in known if name in claim.uniform)
    words = [
        f"for all {first}" if first else "",
        f"exists {', '.join(claim.exists)}",
        f"for all {last}" if last else "",
    ]
    return ": ".join(word for word in words if word)


def depth_words(claim: Claim) -> str | None:
    """Return for which depths a claim with families is judged, or None: `L = 1; L = 2`."""
    found = dict.fromkeys(str(depth) for depth in claim.depths if depth.letters)
    return "; ".join(found) or None
