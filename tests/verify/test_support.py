"""`holds` with little support says so: few instances, only tight ones, one kind of instance, one choice of sizes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.report.html import report_html
from ntk_deq.report.jsonl import result_to_dict
from ntk_deq.report.terminal import TerminalReport
from ntk_deq.verify.results import ClaimResult, RunInfo
from ntk_deq.verify.runner import Options, judge

torch.set_num_threads(1)

INFO = RunInfo("s.yaml", "", "verify-claims", "2025-01-01T00:00:00+00:00", 1.0, 0, {}, "cpu", "float64")


def judged(folder: Path, assume: str, conclude: str, **options: object) -> ClaimResult:
    path = folder / "claims.yaml"
    path.write_text(
        'suite: support\nsettings: {square: {sizes: {n: 1..3}, domain: {A: "real[n, n]", x: "real[n]"}}}\n'
        f'claims:\n  - {{id: one, setting: square, assume: "{assume}", conclude: "{conclude}"}}\n',
        encoding="utf-8",
    )
    (claim,) = load_suite(path).claims
    return judge(claim, Options(**{"instances": 60, "search": 40, **options}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("assume", "conclude", "remark"),
    [
        ("norm(A) >= 0", "norm(A*x) <= norm(A)*norm(x)", ""),
        ("norm(A) >= 0", "A + A' == (A + A')'", ""),
        ("norm(A) >= 0", "norm(A) <= norm(A)*(1 + 1/10^8)", "all are close to equality"),
        ("fro(A) == 0", "norm(x)^2 >= 0", ""),
        ("n <= 1", "norm(A) >= 0", "one choice of n only in square, 1"),
    ],
)
def test_little_support_is_remarked(tmp_path, assume, conclude, remark):
    result = judged(tmp_path, assume, conclude)
    assert result.verdict is Verdict.HOLDS
    assert (remark in result.support.remark) if remark else not result.support.remark


def test_it_counts_what_a_verdict_rests_on(tmp_path):
    result = judged(tmp_path, "norm(A) >= 0", "norm(A*x) <= norm(A)*norm(x)")
    support = result.support
    assert support.met == result.met >= 60
    assert support.clear is not None
    assert 10 < support.clear <= support.met
    assert 20 < support.families <= support.met
    assert support.sizes == 3
    assert support.searched == result.searched > 0


def test_identities_have_no_instance_far_from_equality(tmp_path):
    assert judged(tmp_path, "norm(A) >= 0", "A == A").support.clear is None


def test_few_instances_are_little(tmp_path):
    result = judged(tmp_path, "norm(A) >= 0", "norm(A*x) <= norm(A)*norm(x)", instances=3, search=0)
    assert "3 of 3 instances meet the hypotheses" in result.support.remark


def test_only_holds_is_qualified(tmp_path):
    result = judged(tmp_path, "norm(A) >= 0", "norm(A*x) <= norm(A)", instances=3)
    assert result.verdict is Verdict.REFUTED
    assert not result.support.remark


def test_every_report_says_it(tmp_path):
    result = judged(tmp_path, "norm(A) >= 0", "norm(A*x) <= norm(A)*norm(x)", instances=3, search=0)
    remark = result.support.remark
    entry = json.loads(json.dumps(result_to_dict(result)))
    assert set(entry["support"]) == {"met", "clear", "families", "sizes", "searched", "remark", "nearby", "alone"}
    assert entry["support"]["remark"] == remark
    page = report_html([result], INFO)
    assert f"little support: {remark}" in page
    out = io.StringIO()
    with TerminalReport(Console(file=out, width=200, no_color=True), 1) as report:
        report.claim_finished(result)
    assert f"little support: {remark}" in out.getvalue()
