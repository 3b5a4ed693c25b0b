"""The report as one HTML page that needs no network: style and script inside, formulas in MathML, plots in SVG."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ntk_deq.files.atomic import replace_file
from ntk_deq.report.console import printable, short_seconds
from ntk_deq.report.page.margins import SCALE_NAME
from ntk_deq.report.page.view import Anchors, claim_view
from ntk_deq.report.words import LOOKS, count_verdicts, expectation, is_alarming
from ntk_deq.verify.results import ClaimResult, RunInfo

_LOADER = PackageLoader("ntk_deq.report")


def _shown(value: object) -> object:
    """Return a template value with control characters replaced; the templates escape it afterwards."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    return Environment(
        loader=_LOADER,
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


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
            claims=[claim_view(r, anchor, anchors) for r, anchor in zip(results, places, strict=True)],
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
