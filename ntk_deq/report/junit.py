"""Results as JUnit XML, the format that CI servers read."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from ntk_deq.claims.claim import Verdict
from ntk_deq.files import replace_file
from ntk_deq.report import is_alarming, suite_name, worst_margin
from ntk_deq.report.console import margin_words, one_line, printable
from ntk_deq.verify.results import ClaimResult, RunInfo


def outcome(result: ClaimResult) -> str:
    """Return how JUnit counts a result: `passed`, `failure`, `error` or `skipped`.

    The expected verdict passes, whatever it is. Otherwise `error` and `ill-formed` are errors, `vacuous` and
    `undecided` are skipped where the claim was expected to hold, and every other verdict is a failure: a mutant that
    is not refuted must not hide among the skipped, as the exit code does not let it either.
    """
    if result.as_expected:
        return "passed"
    if result.verdict in (Verdict.ERROR, Verdict.ILL_FORMED):
        return "error"
    return "failure" if is_alarming(result) else "skipped"


def _details(result: ClaimResult) -> str:
    lines = [f"verdict: {result.verdict} ({result.evidence}), expected: {result.expected}"]
    if result.reason:
        lines.append(f"reason: {result.reason}")
    before = " before shrinking" if result.counterexample is not None else ""
    lines.append(f"worst margin{before}: {margin_words(*worst_margin(result))}")
    lines.append(f"instances: {result.instances}, hypotheses met on {result.met}, seed {result.seed}")
    witness = result.counterexample or result.nearest
    if witness is not None:
        margin = margin_words(witness.margin, witness.scale)
        sides = f"{witness.lhs} {witness.relation} {witness.rhs}, margin {margin}"
        lines.append(f"{witness.conclusion}: {witness.argument or sides}")
        lines.append(f"instance {witness.index} of setting {witness.setting}: {witness.family}, sizes {witness.sizes}")
    lines += [f"{p.position}: {p.message}" for p in result.problems]
    if result.position:
        lines.append(f"claim: {result.position}")
    if result.trace:
        lines.append(result.trace)
    return printable("\n".join(lines))


def _case(suite: ET.Element, result: ClaimResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=one_line(suite_name(result)),
        name=one_line(f"{result.id} {result.title}"),
        time=f"{result.seconds:.3f}",
    )
    kind = outcome(result)
    if kind != "passed":
        reason = f": {result.reason}" if result.reason else ""
        message = one_line(f"{result.verdict}, expected {result.expected}{reason}")
        entry = ET.SubElement(case, kind, message=message)
        if kind != "skipped":
            entry.set("type", str(result.verdict))
        entry.text = _details(result)
    elif result.reason:
        ET.SubElement(case, "system-out").text = printable(f"{result.verdict}: {result.reason}")


def junit_xml(results: Sequence[ClaimResult], info: RunInfo) -> str:
    """Return the JUnit XML of a run: one suite, one case a claim; see `outcome` for what counts as what.

    A run that was interrupted has one case more, an error, lest the part that was judged pass for the whole.
    """
    outcomes = [outcome(result) for result in results] + ["error"] * info.interrupted
    counts = {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "skipped": str(outcomes.count("skipped")),
        "time": f"{info.seconds:.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(
        root, "testsuite", {"name": one_line(info.title or info.suite), **counts, "timestamp": one_line(info.started)}
    )
    properties = ET.SubElement(suite, "properties")
    facts = {
        "suite": info.suite,
        "command": info.command,
        "seed": str(info.seed),
        "device": info.device,
        "dtype": info.dtype,
        "interrupted": str(info.interrupted).lower(),
        **{f"version.{name}": version for name, version in info.versions.items()},
    }
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=one_line(name), value=one_line(value))
    for result in results:
        _case(suite, result)
    if info.interrupted:
        case = ET.SubElement(suite, "testcase", classname="verify-claims", name="interrupted", time="0.000")
        ET.SubElement(case, "error", message="the run was interrupted: not every claim was judged", type="interrupted")
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True).decode("utf-8") + "\n"


def write_junit(path: str | Path, results: Sequence[ClaimResult], info: RunInfo) -> None:
    """Write `junit.xml`.

    Args:
        path: The file; an earlier one is replaced at once.
        results: Every result of the run, in order.
        info: The run.
    """
    replace_file(path, junit_xml(results, info))
