"""What `verify-claims check` prints: settings, shapes of names, and each formula with its type.

A line of source text with a part of it underlined.

Problems of a claim file on the terminal: where, what, the source line with the place underlined, a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from rich.cells import cell_len
from rich.console import Console

from ntk_deq.claims.check import entrywise_notes
from ntk_deq.claims.claim import Claim, IllFormed, Suite
from ntk_deq.claims.describe import (
    SystemDescription,
    choose_words,
    depth_words,
    describe_systems,
    member_words,
    order_words,
    run_words,
    size_words,
)
from ntk_deq.claims.entries import by_names
from ntk_deq.claims.runs import start_formulas
from ntk_deq.errors import Problem, shortened
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import DomainKind, Free
from ntk_deq.language.families import defined
from ntk_deq.language.tree import BOUND, QUANTIFIERS, RANGED, Expr, Formula, Kind
from ntk_deq.language.types import BOOLEAN, Type
from ntk_deq.report.console import BLANK, Paragraph, Piece, one_line, printable, say, say_all


def caret_lines(source: str, span: tuple[int, int], *, width: int = 10_000) -> tuple[str, str]:
    r"""Return the line in which a span starts and a line of carets to put under it.

    A line longer than `width` is cut to a window around the span, with `…` where something is left out.

    Args:
        source: The text, one line or several.
        span: Offsets (start, stop) in `source`.
        width: Columns there are, at least 20.

    Example:
        >>> print(*caret_lines("norm(W) <= sigma_mim(Z)", (11, 20)), sep="\n")
        norm(W) <= sigma_mim(Z)
                   ^^^^^^^^^
    """
    start = min(max(span[0], 0), len(source))
    first = source.rfind("\n", 0, start) + 1
    line = printable(source[first:].split("\n", 1)[0]).replace("\t", " ")
    start -= first
    stop = min(max(span[1] - first, start + 1), max(len(line), start + 1))
    left = right = ""
    if len(line) > width:
        begin = max(0, min(start - width // 3, len(line) - width))
        end = begin + width
        left, right = "…" * (begin > 0), "…" * (end < len(line))
        line = line[begin + len(left) : end - len(right)]
        start, stop = start - begin, min(stop - begin, width - len(right))
    shown = left + line + right
    return shown, " " * cell_len(shown[:start]) + "^" * max(1, cell_len(shown[start:stop]))


SHOWN = 50
"""Problems of a file that are printed: nobody mends more at once, and the first ones often cause the rest."""


def render_problem(console: Console, problem: Problem, *, indent: int = 0) -> None:
    """Print one problem.

    Args:
        console: Where.
        problem: What is wrong and where.
        indent: Columns to leave free on the left.
    """
    claim = [(f"{shortened(problem.claim)}: ", "cyan")] if problem.claim is not None else []
    place = shortened(f"{problem.position}: ")
    say(console, (place, "bold"), *claim, shortened(problem.message), indent=indent)
    if problem.source is not None and problem.span is not None:
        line, carets = caret_lines(problem.source, problem.span, width=max(console.width - indent - 5, 20))
        say(console, line, indent=indent + 4, wrap=False)
        say(console, (carets, "bold red"), indent=indent + 4, wrap=False)
    if problem.hint:
        say(console, (shortened(problem.hint), "green"), indent=indent + 4)


def render_problems(console: Console, problems: Sequence[Problem]) -> None:
    """Print the first problems, a blank line between two, and the number of all at the end."""
    for problem in problems[:SHOWN]:
        render_problem(console, problem)
        console.print()
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    left = f", of which the first {SHOWN} are shown" if len(problems) > SHOWN else ""
    say(console, (f"{count}{left}", "bold red"))


_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)|(?P<word>\b(?:and|or|not|for all|exists|with)\b)"
    r"|(?P<call>[A-Za-z_]\w*(?=\())|(?P<name>[A-Za-z_]\w*)|(?P<relation>[<>=!]=?)"
)
_STYLES = {"number": "magenta", "word": "bold", "call": "blue", "name": "", "relation": "bold yellow"}
_LABEL_LIMIT = 24  # a longer label is not waited for by the others of its claim
_NARROW = 70  # below this the type stands above the formula


def render_check(console: Console, suite: Suite, claims: Sequence[Claim | IllFormed]) -> None:
    """Print what a claim file says as the product understands it; nothing is run.

    Args:
        console: Where.
        suite: The suite that was read.
        claims: The claims to show, well-formed or not.
    """
    width = console.width
    if suite.title:
        say(console, (one_line(suite.title), "bold"))
        console.print()
    for system in describe_systems(claims):
        say_all(console, [*_system_lines(system), BLANK])
    for claim in claims:
        if isinstance(claim, IllFormed):
            _render_ill_formed(console, claim)
        else:
            say_all(console, [*_claim_lines(claim, width), BLANK])
    for warning in suite.warnings:
        render_problem(console, warning)
    bad = sum(isinstance(claim, IllFormed) for claim in claims)
    count = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
    if bad:
        say(console, (f"{count}, {bad} ill-formed", "bold red"))
    else:
        say(console, (f"{count}, every formula is well-formed", "green"))


def _system_lines(system: SystemDescription) -> Iterator[Paragraph]:
    title = f"  {system.title}" if system.title else ""
    sizes = f"  sizes {system.sizes}" if system.sizes else ""
    yield [], [("system ", "dim"), (system.name, "bold"), title, (sizes, "dim")]
    state = [system.equilibrium] if system.equilibrium is not None else []
    groups = [("variables", system.variables), ("state", state), ("define", system.definitions)]
    rows = [row for _, rows in groups for row in rows]
    widths = [max((cell_len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for section, lines in groups:
        for number, (name, kind, words) in enumerate(lines):
            head = _heading("" if number else section, width=13)
            columns = [(name.ljust(widths[0] + 2), "cyan"), (kind.ljust(widths[1] + 2), "green")]
            yield [*head, *columns], [words] if section == "variables" else highlight(words)
        if section == "state" and state:
            yield _heading("exists", width=13), [system.certificate]
    if system.kernel:
        yield _heading("kernel", width=13), [system.kernel]


def highlight(text: str) -> list[Piece]:
    """Return a formula's source text cut into pieces with styles.

    Example:
        >>> highlight("norm(A) <= 1")[:2]
        [('norm', 'blue'), '(']
    """
    pieces: list[Piece] = []
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() > end:
            pieces.append(text[end : match.start()])
        style = _STYLES[str(match.lastgroup)]
        pieces.append((match.group(), style) if style else match.group())
        end = match.end()
    if end < len(text):
        pieces.append(text[end:])
    return pieces


def type_words(expr: Expr) -> str:
    """Return the type of a formula in words; for a comparison, the type of what it compares, in the plural.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.types import matrix
        >>> from ntk_deq.language.typing import infer
        >>> names = {"A": matrix("m", "m")}
        >>> type_words(infer(parse("A'*A"), names)), type_words(infer(parse("A == A'"), names))
        ('matrix m x m', 'matrices m x m')
    """
    if expr.type != BOOLEAN:
        return str(expr.type) if expr.type is not None else "no type"
    words = []
    for text in dict.fromkeys(_compared(expr)):
        head, _, rest = text.partition(" ")
        plural = {"matrix": "matrices", "step": "step"}.get(head, f"{head}s")
        words.append(f"{plural} {rest}".strip())
    return ", ".join(words)


def _compared(expr: Expr) -> list[str]:
    """Return the types that the comparisons of a statement compare; the range of a quantifier is no part of it."""
    if expr.kind is Kind.COMPARE:
        return [str(expr.args[0].type)]
    parts = expr.args[:1] if expr.kind in QUANTIFIERS else expr.args
    return [text for part in parts for text in _compared(part)]


def _render_ill_formed(console: Console, claim: IllFormed) -> None:
    say(console, (one_line(claim.id), "bold"), f"  {one_line(claim.title)}", ("  ill-formed", "bold red"))
    for problem in claim.problems:
        render_problem(console, problem, indent=2)
    console.print()


def _claim_lines(claim: Claim, width: int) -> Iterator[Paragraph]:
    where = f"  {one_line(claim.where)}" if claim.where else ""
    expect = f"  expect {claim.expect}" if claim.expect != "holds" else ""
    yield [], [(one_line(claim.id), "bold"), f"  {one_line(claim.title)}", (f"{where}{expect}", "dim")]
    for setting in claim.settings:
        yield _heading("setting"), _setting_words(setting)
    parts = {
        "run": None if claim.run is None else run_words(claim.run),
        "choose": choose_words(claim),
        "order": order_words(claim),
        "members" if claim.members else "depths": depth_words(claim),
        "names": ", ".join(f"{name} {kind}" for name, kind in _names(claim).items()) or None,
    }
    yield from ((_heading(name), [words]) for name, words in parts.items() if words is not None)
    yield from _formula_lines(claim.stated, width)
    for warning in claim.warnings:
        text = f"{warning.position}: {warning.message}" + (f" {warning.hint}." if warning.hint else "")
        yield _heading("warning", "yellow"), [one_line(text)]
    for name, note in entrywise_notes(claim).items():
        yield _heading("note", "yellow"), [one_line(f"{name}: {note}")]


def _heading(word: str, style: str = "dim", width: int = 11) -> list[Piece]:
    return [(f"  {word}".ljust(width), style)]


def _setting_words(setting: Setting) -> list[Piece]:
    model = setting.model.name if setting.model is not None else "no model"
    kind = "whole domain" if setting.universal else "draws from a distribution"
    if setting.images is not None:
        kind = f"images from {setting.images.source}, rest drawn"
    if setting.measured:
        kind = setting.measured
    sizes = "".join(f", {size_words(letter, size)}" for letter, size in setting.sizes.items())
    return [(setting.name, "cyan"), f": {model}, {kind}{sizes}"]


def _names(claim: Claim) -> dict[str, Type]:
    """Return the type of each name of the model or setting that the formulas use, sizes and step indices apart."""
    own = {
        *claim.given,
        *claim.exists,
        *by_names(claim.let),
        *(letter for setting in claim.settings for letter in setting.sizes),
    }
    own |= {entry.reach.letter for entry in map(defined, claim.let) if entry.reach is not None}
    used: dict[str, Type] = {}
    members = {
        name: (member_words(name, variable.over), variable.type)
        for setting in claim.settings
        for name, variable in setting.variables.items()
        if variable.over is not None
    }
    for node in chain(claim.nodes(), *(formula.expr.walk() for formula in start_formulas(claim).values())):
        if node.kind in RANGED:
            own.update(node.names)
        elif node.kind is Kind.NAME or node.kind is Kind.INDEX:
            if node.name not in used and node.type is not None and BOUND not in node.name:
                if node.name in members or not node.type.sort.is_index:
                    used[node.name] = node.type
    return dict(members.get(name, (name, type_)) for name, type_ in used.items() if name not in own)


def _domain_words(free: Free) -> str:
    domain = free.domain
    if domain.text:
        return f"in {domain.text}" if domain.kind in (DomainKind.INTERVAL, DomainKind.INTEGER) else domain.text
    return str(domain.kind)


def _formula_lines(claim: Claim, width: int) -> Iterator[Paragraph]:
    rows: list[tuple[str, str, str, list[Piece]]] = []
    groups: list[tuple[str, dict[str, Free], dict[str, Formula]]] = [
        ("given", claim.given, {}),
        ("let", {}, claim.let),
        ("assume", {}, claim.assume),
        ("exists", claim.exists, {}),
        ("witness", {}, claim.witness),
        ("conclude", {}, claim.conclude),
    ]
    rows += [("given", name, "function", [one_line(domain.text)]) for name, domain in claim.members.items()]
    for section, variables, formulas in groups:
        for free in variables.values():
            over = "" if free.over is None else f" for {free.over.text}"
            rows.append((section, member_words(free.name, free.over), str(free.type), [_domain_words(free) + over]))
        for key, function in claim.functions.items() if section == "let" else ():
            rows.append((section, one_line(key), "function", highlight(one_line(function.text))))
        for formula in formulas.values():
            words = highlight(one_line(formula.text))
            rows.append((section, one_line(formula.name), type_words(formula.expr), words))
    labels = [cell_len(label) for _, label, _, _ in rows if cell_len(label) <= _LABEL_LIMIT]
    label_width = max(labels, default=0)
    type_width = max((len(kind) for _, _, kind, _ in rows), default=0)
    before = ""
    for section, label, kind, words in rows:
        head = _heading(section if section != before else "")
        before = section
        label = label + " " * max(0, label_width - cell_len(label))
        if width < _NARROW or cell_len(label) > label_width:
            yield [], [*head, (label, "cyan"), (f"  {kind}", "green")]
            yield [" " * 13], words
        else:
            yield [*head, (f"{label}  ", "cyan"), (f"{kind.ljust(type_width)}  ", "green")], words
