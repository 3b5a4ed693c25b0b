"""The report in a real browser, headless: the script runs, deep links open, filters filter, nothing is blocked."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess

import pytest
from sample_results import INFO, all_results, refuted_unexpected

from ntk_deq.report.html import report_html

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome on PATH")

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --enable-logging=stderr"
).split()


def dump(tmp_path, text: str, anchor: str = "") -> tuple[str, str]:
    """Return the document after its script ran, and what the browser logged."""
    path = tmp_path / "report.html"
    path.write_text(text, "utf-8")
    command = [
        BROWSER,
        *FLAGS,
        "--virtual-time-budget=2000",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        f"{path.as_uri()}{anchor}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def claims(document: str) -> dict[str, str]:
    """Return each claim's part of the document by anchor."""
    parts = re.split(r'<tbody class="claim', document)[1:]
    return {re.search(r'id="([^"]+)"', part).group(1): part for part in parts}


def with_actions(script: str) -> str:
    """Return the page with the user's actions as a second script, its policy opened to it."""
    text = report_html(all_results(), INFO)
    text = re.sub(r"script-src '[^']+'", "script-src 'unsafe-inline'", text)
    return text.replace("</body>", f"<script>{script}</script></body>")


def test_a_deep_link_opens_its_claim_and_no_other(tmp_path):
    document, log = dump(tmp_path, report_html(all_results(), INFO), "#R.S4M")
    found = claims(document)
    assert len(found) == 8
    opened = [anchor for anchor, part in found.items() if re.search(r"<details open", part)]
    assert opened == ["R.S4M"]
    assert 'class="js"' in document
    assert "8 claims" in document
    assert "CONSOLE" not in log, log  # a refused style or script, or an exception, would be logged
    assert "Content Security Policy" not in log


def test_filters_and_sorting(tmp_path):
    document, log = dump(
        tmp_path,
        with_actions(
            """
            const input = document.getElementById("ui-filter");
            input.value = "lower BOUND";
            input.dispatchEvent(new Event("input"));
            document.body.dataset.first = document.getElementById("ui-shown").textContent;
            input.value = "";
            document.querySelector('.chip[data-verdict="refuted"]').click();
            document.body.dataset.second = document.getElementById("ui-shown").textContent;
            document.getElementById("ui-unexpected").click();
            document.body.dataset.third = document.getElementById("ui-shown").textContent;
            document.querySelector('.chip[data-verdict="refuted"]').click();
            document.getElementById("ui-unexpected").click();
            document.querySelector('th[data-sort="margin"] button').click();
            """
        ),
    )
    assert "Uncaught" not in log
    body = re.search(r"<body([^>]*)>", document).group(1)
    assert 'data-first="1 of 8 claims"' in body
    assert 'data-second="2 of 8 claims"' in body
    assert 'data-third="1 of 8 claims"' in body
    order = list(claims(document))
    assert order[:4] == ["R.L3.2", "R.L5.1.m1", "R.S4M", "R.L5.1"]
    assert set(order[-3:]) == {"R.T4.4", "R.L4.1", "R.BAD"}  # without a margin: last


def test_a_hostile_claim_runs_nothing(tmp_path):
    document, log = dump(tmp_path, report_html(all_results(), INFO), "#script-alert-x-script-textarea-7-7-raw-bold-31m")
    assert "CONSOLE" not in log
    assert document.count("<script") == 1


@pytest.mark.parametrize(
    ("clipboard", "said"),
    [
        ("async (text) => { document.body.dataset.taken = text; }", "copied"),
        ("async () => { throw new Error('refused'); }", "selected"),
    ],
)
def test_a_script_is_copied_or_selected(tmp_path, clipboard, said):
    witness = dataclasses.replace(refuted_unexpected().counterexample, script="import numpy as np\nprint(1 < 2)\n")
    text = report_html([dataclasses.replace(refuted_unexpected(), counterexample=witness)], INFO)
    text = re.sub(r"script-src '[^']+'", "script-src 'unsafe-inline'", text)
    click = (
        f"Object.defineProperty(navigator, 'clipboard', {{value: {{writeText: {clipboard}}}}});"
        "const copy = document.querySelector('.copy'); copy.closest('.script').open = true; copy.click();"
        "setTimeout(() => { document.body.dataset.picked = String(getSelection()).trim(); }, 100);"
    )
    document, log = dump(tmp_path, text.replace("</body>", f"<script>{click}</script></body>"), "#R.S4M")
    assert f">{said}</button>" in document
    held = re.search(r'<body[^>]*data-(taken|picked)="import numpy as np\s+print\(1 &lt; 2\)', document)
    held = held or re.search(r'<body[^>]*data-(taken|picked)="import numpy as np\s+print\(1 < 2\)', document)
    assert held is not None
    assert held.group(1) == {"copied": "taken", "selected": "picked"}[said]
    assert "CONSOLE" not in log, log


def test_a_picture_can_be_taken(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report_html(all_results(), INFO), "utf-8")
    picture = tmp_path / "report.png"
    flags = [*FLAGS, "--window-size=420,900", f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}"]
    subprocess.run([BROWSER, *flags, path.as_uri()], capture_output=True, timeout=120, check=True)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
