"""The report as one HTML page that needs no network: style and script inside, formulas in MathML, plots in SVG.

What it shows of each claim is worked out from the results: plain values that the templates only lay out.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ntk_deq.claims.statement import StatementLine
from ntk_deq.files import replace_file
from ntk_deq.report import (
    LOOKS,
    count_verdicts,
    expectation,
    is_alarming,
    little_support,
    remarks,
    replay_command,
    scale_of,
    second_look,
    shown_margin,
)
from ntk_deq.report.axes import Cell, margin_cell, number_cell, safe_mathml, symbol, typeset_number, value_cell
from ntk_deq.report.check import caret_lines
from ntk_deq.report.console import matrix_rows, printable, relative_margin, short_margin, short_number, short_seconds
from ntk_deq.report.margins import SCALE_NAME, margin_plot, share_bar, shared_axis
from ntk_deq.report.runs import View, run_views, starts_view
from ntk_deq.verify.results import ClaimResult, Computed, RunInfo, Witness

# A matrix larger than this on a side is shown by its first entries: nobody reads 400 numbers.
_SIDE_LIMIT = 8

_RELATIONS = {"<=": "≤", ">=": "≥", "==": "=", "!=": "≠"}


def safe_url(url: object) -> str | None:
    """Return `url` where it is an http or https address, and None otherwise."""
    if not isinstance(url, str) or re.search(r"[\s<>\"\\]", url) or url != printable(url):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.netloc else None


class Anchors:
    """Gives each claim an id for deep links that is valid in HTML and unique on the page."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """Return `name` with what a link cannot hold replaced by hyphens, numbered where it is taken."""
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "claim"
        if base.startswith("ui-"):
            base = "claim-" + base
        anchor, number = base, 2
        while anchor in self._taken:
            anchor, number = f"{base}-{number}", number + 1
        self._taken.add(anchor)
        return anchor


def _matrix(name: str, value: Any) -> View:
    """Return a matrix of a witness as rows of cells; `size` is empty where the values were too large to keep."""
    rows = [] if value is None else matrix_rows(value)
    columns = len(rows[0]) if rows else 0
    return {
        "name": name,
        "rows": [[value_cell(x) for x in row[:_SIDE_LIMIT]] for row in rows[:_SIDE_LIMIT]],
        "size": "" if value is None else f"{len(rows)} × {columns}",
        "cut": max(len(rows), columns) > _SIDE_LIMIT,
        "radius": "",
    }


def _computed_matrix(computed: Computed) -> View:
    """Return a matrix that was computed: its digits are rounded, and the radius says how far it may be off besides."""
    view = _matrix(computed.name, computed.value)
    rows = [[number_cell(float(cell.exact)) for cell in row] for row in view["rows"]]
    radius = typeset_number(f"+/- {short_number(computed.radius, digits=2)}") if computed.radius else ""
    return view | {"rows": rows, "radius": radius}


def _pairs(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _witness(heading: str, kind: str, witness: Witness) -> View:
    """Return an instance ready to lay out: why it is shown, and numbers apart from matrices."""
    scalars = {name: value for name, value in witness.values.items() if isinstance(value, int | float)}
    computed = [(c.name, c.value) for c in witness.computed_values]
    return {
        "heading": heading,
        "kind": kind,
        "witness": witness,
        "relation": _RELATIONS.get(witness.relation, witness.relation),
        "scalars": [(name, value_cell(value)) for name, value in scalars.items()],
        "matrices": [_matrix(name, value) for name, value in witness.values.items() if name not in scalars],
        "sizes": _pairs(witness.sizes),
        "steps": _pairs(witness.step),
        "margin": margin_cell(witness.margin, witness.scale),
        "computed_scalars": [(name, Cell(typeset_number(v), v)) for name, v in computed if isinstance(v, str)],
        "computed_matrices": [_computed_matrix(c) for c in witness.computed_values if not isinstance(c.value, str)],
    }


def _witnesses(result: ClaimResult) -> list[View]:
    shown = [
        ("Counterexample", "refuted", result.counterexample),
        ("Undecided instance", "undecided", result.undecided),
        ("Nearest to meeting the hypotheses", "vacuous", result.nearest),
        ("Tightest instance", "holds", result.tightest if result.counterexample is None else None),
    ]
    return [_witness(heading, kind, witness) for heading, kind, witness in shown if witness is not None]


def _statement(lines: tuple[StatementLine, ...]) -> list[tuple[str, list[StatementLine]]]:
    """Return the lines under their sections, in the order in which the sections first occur."""
    groups: dict[str, list[StatementLine]] = {}
    for line in lines:
        groups.setdefault(line.section, []).append(line)
    return list(groups.items())


def _settings(result: ClaimResult) -> list[dict[str, str]]:
    rows = []
    for setting in result.settings:
        spans = setting["sizes"].items()
        ranges = [f"{letter} = {low}" if low == high else f"{letter} = {low}…{high}" for letter, (low, high) in spans]
        rows.append(
            {
                "name": setting["name"],
                "kind": "a whole domain" if setting["universal"] else "draws from a distribution",
                "sizes": ", ".join(ranges),
                "met": f"{setting['met']} of {setting['instances']}",
            }
        )
    return rows


def _carets(result: ClaimResult) -> list[tuple[str, str, str, str]]:
    """Return (place, message, source with caret line, hint) for each problem of an ill-formed claim."""
    rows = []
    for problem in result.problems:
        shown = problem.source or ""
        if problem.source is not None and problem.span is not None:
            shown = "\n".join(caret_lines(problem.source, problem.span))
        rows.append((str(problem.position), problem.message, shown, problem.hint or ""))
    return rows


def _claim(result: ClaimResult, anchor: str, anchors: dict[str, str]) -> View:
    """Return what the page says about a claim.

    Args:
        result: The verdict.
        anchor: The id of its place on the page.
        anchors: The ids of all claims by claim id, for links between claims.
    """
    axis = shared_axis(result.conclusions)
    conclusions = [
        (c, margin_cell(c.worst, scale_of(c.worst, [c])), Markup(margin_plot(c, axis, ident=f"ui-{anchor}-plot-{i}")))
        for i, c in enumerate(result.conclusions)
    ]
    hypotheses = []
    for i, h in enumerate(result.hypotheses):
        label = f"held {h.held}, failed {h.failed}, unsure {h.unsure}"
        parts = [("true", h.held), ("unsure", h.unsure), ("false", h.failed)]
        implicit = h.text.startswith("(implicit)")  # one that is known where it does not hold, and has no bar
        drawn = "" if implicit else share_bar(parts, ident=f"ui-{anchor}-hypothesis-{i}", label=label)
        hypotheses.append((h, Markup(drawn)))
    authors = result.source.get("authors", "")
    margin, scale = shown_margin(result)
    relative = relative_margin(margin, scale)
    return {
        "result": result,
        "anchor": anchor,
        "tone": f"v-{result.verdict}{' expected' * result.as_expected}",
        "alarming": is_alarming(result),
        "sign": LOOKS[result.verdict].sign,
        "margin": margin_cell(margin),
        "relative": "" if relative is None else short_margin(relative, digits=2),
        "margin_key": "" if margin is None else repr(margin.lo).replace("inf", "Infinity"),
        "seconds": short_seconds(result.seconds) if math.isfinite(result.seconds) else "–",
        "statement": _statement(result.statement),
        "hypotheses": hypotheses,
        "conclusions": conclusions,
        "witnesses": _witnesses(result),
        "settings": _settings(result),
        "url": safe_url(result.source.get("url")),
        "authors": ", ".join(map(str, authors)) if isinstance(authors, list | tuple) else str(authors),
        "mutant_of": anchors.get(result.mutates) if result.mutates else None,
        "carets": _carets(result),
        "remarks": remarks(result),
        "second_look": second_look(result),
        "little_support": little_support(result),
        "replay": replay_command(result.replay) if result.replay is not None else "",
        "runs": run_views(result.runs, anchor),
        "starts": starts_view(result.starts),
    }


_LOADER = PackageLoader("ntk_deq.report")


def _shown(value: object) -> object:
    """Return a template value with control characters replaced; the templates escape it afterwards."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    found = Environment(
        loader=_LOADER,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"symbol": symbol, "typeset": typeset_number, "mathml": safe_mathml, "margin": margin_cell}
    return found


@cache
def _asset(name: str) -> Markup:
    return Markup(_LOADER.get_source(_environment(), name)[0].strip())


def _digest(text: str) -> Markup:
    """Return the hash by which the page's content security policy admits its own style or script and no other."""
    return Markup("'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'")


def _moment(started: str) -> str:
    """Return an ISO 8601 time as people write it; any other text as it is."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    zone = moment.strftime(" %Z") if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _headline(results: Sequence[ClaimResult], info: RunInfo) -> str:
    unexpected = sum(not result.as_expected for result in results)
    if not results:
        return "No claim was judged."
    tail = " The run was interrupted before its end." if info.interrupted else ""
    if not unexpected:
        all_of = "The one claim" if len(results) == 1 else f"All {len(results)} claims"
        return f"{all_of} came out as expected.{tail}"
    return f"{unexpected} of {len(results)} claims came out against expectation.{tail}"


def _tone(results: Sequence[ClaimResult], info: RunInfo) -> str:
    """Return the tone of the headline: an alarm only where something is wrong, and not where something is open."""
    if any(is_alarming(result) for result in results):
        return "bad"
    return "good" if results and all(result.as_expected for result in results) and not info.interrupted else "mild"


def report_html(results: Sequence[ClaimResult], info: RunInfo) -> str:
    """Return the whole page.

    Everything that comes from a claim file is escaped, except MathML that holds MathML elements only. The page's policy
    admits its own style and script by hash and forbids every connection.

    Args:
        results: Every result of the run, in order.
        info: The run.
    """
    given = Anchors()
    places = [given.take(result.id) for result in results]
    anchors = {result.id: anchor for result, anchor in zip(results, places, strict=True)}
    style, script = _asset("report.css"), _asset("report.js")
    return (
        _environment()
        .get_template("report.html")
        .render(
            info=info,
            style=style,
            script=script,
            style_digest=_digest(style),
            script_digest=_digest(script),
            headline=_headline(results, info),
            tone=_tone(results, info),
            calm={r.verdict for r in results} - {r.verdict for r in results if not r.as_expected},
            scale_name=SCALE_NAME,
            counts=[(verdict, LOOKS[verdict], count) for verdict, count in count_verdicts(results).items()],
            claims=[_claim(r, anchor, anchors) for r, anchor in zip(results, places, strict=True)],
            unexpected=[(r.id, anchors[r.id], f"{r.verdict}, {expectation(r)}") for r in results if not r.as_expected],
            started=_moment(info.started),
            duration=short_seconds(info.seconds),
            expectation=expectation,
        )
    )


def write_html(path: str | Path, results: Sequence[ClaimResult], info: RunInfo) -> None:
    """Write `report.html`.

    Args:
        path: The file; an earlier one is replaced at once.
        results: Every result of the run, in order.
        info: The run.
    """
    replace_file(path, report_html(results, info) + "\n")
