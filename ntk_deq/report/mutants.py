"""What became of mutants: a line each as they are judged, tables by claim and by rule, JSON lines, Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console

from ntk_deq.claims.mutation import RULE_MEANINGS
from ntk_deq.report.console import Piece, one_line, say, say_hanging, short_number, short_seconds
from ntk_deq.report.jsonl import json_safe
from ntk_deq.verify.mutation import Fate, MutantResult, Score, score

_STYLES = {
    Fate.KILLED: "green",
    Fate.SURVIVED: "bold red",
    Fate.VACUOUS: "yellow",
    Fate.UNDECIDED: "yellow",
    Fate.ERROR: "bold magenta",
    Fate.WEAKER: "dim",
}
_INTERRUPTED = "Interrupted: not every mutant was judged."
_WIDTH = max(map(len, Fate))
_COLUMNS = (Fate.KILLED, Fate.SURVIVED, Fate.VACUOUS, Fate.UNDECIDED, Fate.ERROR, Fate.WEAKER)


def change(result: MutantResult) -> str:
    """Return what was changed, on one line: `(6): 1 - gamma0 -> 1 + gamma0`."""
    mutation = result.mutation
    after = mutation.after or "(removed)"
    return one_line(f"{mutation.where}: {mutation.before} -> {after}")


def outcome(result: MutantResult) -> str:
    """Return in words what backs a fate up."""
    judged = result.result
    if judged is None:
        return "follows from the claim"
    if result.fate is Fate.KILLED:
        witness = judged.counterexample
        sizes = ", ".join(f"{name} = {size}" for name, size in witness.sizes.items()) if witness is not None else ""
        return f"refuted at {sizes}" if sizes else "refuted"
    if result.fate is Fate.SURVIVED:
        closest = "no margin" if result.closest is None else f"closest relative margin {short_number(result.closest)}"
        return f"holds on {judged.met} of {judged.instances} instances, {closest}"
    return one_line(judged.reason)


def mutant_object(result: MutantResult) -> dict[str, Any]:
    """Return a mutant and its fate as a JSON-safe object."""
    mutation, judged = result.mutation, result.result
    entry: dict[str, Any] = {
        "id": mutation.claim.id,
        "claim": result.parent,
        "rule": mutation.rule,
        "fate": result.fate.value,
        "section": mutation.where.section,
        "formula": mutation.where.name,
        "span": [mutation.where.span.start, mutation.where.span.stop],
        "source": mutation.where.text,
        "before": mutation.before,
        "after": mutation.after,
        "closest": result.closest,
        "outcome": outcome(result),
    }
    if judged is not None:
        for name in ("verdict", "instances", "met", "worst_margin", "seed", "seconds", "reason", "counterexample"):
            entry[name] = getattr(judged, name)
    return json_safe(entry)


def render_mutant(console: Console, result: MutantResult) -> None:
    """Print the line of a mutant; what did not die says why."""
    head: list[Piece] = [(f"{result.fate.ljust(_WIDTH)} ", _STYLES[result.fate]), (result.mutation.claim.id, "bold")]
    say_hanging(console, ["  "], [*head, f"  {change(result)}"])
    if result.fate not in (Fate.KILLED, Fate.WEAKER):
        say(console, (outcome(result), "dim"), indent=2 + _WIDTH + 1)


def render_summary(
    console: Console, results: Sequence[MutantResult], *, seconds: float, interrupted: bool = False
) -> None:
    """Print how many mutants of each claim and of each rule were refuted, what survived, and the score."""
    for title, groups in (("claim", by_claim(results)), ("rule", by_rule(results))):
        console.print()
        for line in _table(title, groups):
            say(console, line, wrap=False)
    left = [result for result in results if result.fate not in (Fate.KILLED, Fate.WEAKER)]
    if left:
        console.print()
        say(console, (f"{len(left)} not refuted:", "bold red"))
        for result in left:
            say(console, f"{result.mutation.claim.id}  {change(result)}; {result.fate}: {outcome(result)}", indent=2)
    console.print()
    say(console, f"{score_text(score(results))} in {short_seconds(seconds)}")
    if interrupted:
        say(console, (_INTERRUPTED, "bold red"))


def score_text(found: Score) -> str:
    """Return a score in words.

    Example:
        >>> score_text(Score({Fate.KILLED: 9, Fate.SURVIVED: 1, Fate.WEAKER: 5}))
        'mutation score 90.0%: 9 of 10 refuted; 5 more follow from their claims'
    """
    weaker = found.counts.get(Fate.WEAKER, 0)
    more = f"; {weaker} more follow from their claims" if weaker else ""
    if found.value is None:
        return f"no mutant was judged{more}"
    return f"mutation score {found.value:.1%}: {found.counts[Fate.KILLED]} of {found.judged} refuted{more}"


def by_claim(results: Iterable[MutantResult]) -> dict[str, Score]:
    """Return the score of each claim, in order."""
    return _grouped(results, lambda result: result.parent)


def by_rule(results: Iterable[MutantResult]) -> dict[str, Score]:
    """Return the score of each rule, in the order of the rules."""
    found = _grouped(results, lambda result: result.mutation.rule)
    return {rule: found[rule] for rule in RULE_MEANINGS if rule in found}


def _grouped(results: Iterable[MutantResult], key: Callable[[MutantResult], str]) -> dict[str, Score]:
    groups: dict[str, list[MutantResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return {name: score(group) for name, group in groups.items()}


def _shown_columns(groups: dict[str, Score]) -> list[Fate]:
    always = (Fate.KILLED, Fate.SURVIVED, Fate.WEAKER)
    return [fate for fate in _COLUMNS if fate in always or any(s.counts[fate] for s in groups.values())]


def _percent(found: Score) -> str:
    return "-" if found.value is None else f"{found.value:.0%}"


def _table(title: str, groups: dict[str, Score]) -> Iterator[str]:
    columns = _shown_columns(groups)
    width = max([len(title), *map(len, groups)])
    yield "  ".join([title.ljust(width), *(fate.value for fate in columns), "score"])
    for name, found in groups.items():
        cells = [str(found.counts[fate]).rjust(len(fate)) for fate in columns]
        yield "  ".join([name.ljust(width), *cells, _percent(found).rjust(5)])


def mutants_markdown(results: Sequence[MutantResult], *, title: str, command: str, interrupted: bool = False) -> str:
    """Return a report in Markdown: the score, tables by claim and by rule, every mutant that was not refuted.

    Args:
        results: Every mutant.
        title: What was mutated.
        command: How to get the report again.
        interrupted: Whether there are mutants that were not judged.
    """
    lines = [f"# Mutants of {_cell(title)}", "", f"`{command}`", "", f"{score_text(score(results))}.", ""]
    lines += [f"**{_INTERRUPTED}**", ""] if interrupted else []
    for heading, groups in (("claim", by_claim(results)), ("rule", by_rule(results))):
        columns = _shown_columns(groups)
        lines += [f"| {heading} | {' | '.join(columns)} | score |", f"|---|{'---:|' * (len(columns) + 1)}"]
        for name, found in groups.items():
            meaning = f": {RULE_MEANINGS[name]}" if heading == "rule" else ""
            cells = " | ".join(str(found.counts[fate]) for fate in columns)
            lines.append(f"| {_cell(name)}{meaning} | {cells} | {_percent(found)} |")
        lines.append("")
    left = [result for result in results if result.fate not in (Fate.KILLED, Fate.WEAKER)]
    lines += _listing("Not refuted", left)
    lines += _listing("Weaker by nature: they follow from their claims", [r for r in results if r.fate is Fate.WEAKER])
    return "\n".join(lines).rstrip() + "\n"


def _listing(heading: str, results: Sequence[MutantResult]) -> list[str]:
    if not results:
        return []
    lines = [f"## {heading}", "", "| mutant | change | outcome |", "|---|---|---|"]
    for result in results:
        said = f"{result.fate}: {outcome(result)}" if result.fate is not Fate.WEAKER else outcome(result)
        lines.append(f"| {_cell(result.mutation.claim.id)} | {_cell(change(result))} | {_cell(said)} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    """Return a text that cannot break a table or be read as HTML."""
    text = one_line(text).replace("\\", "\\\\")
    for sign in "|*_[]`":
        text = text.replace(sign, "\\" + sign)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
