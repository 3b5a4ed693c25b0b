"""Run `verify-claims` in this process or in one of its own, and read what it wrote."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ntk_deq.cli.main import main

# A test run in the background of a shell ignores SIGINT, and so would its children.
RESTORED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{RESTORED}; from ntk_deq.cli.main import run; run()"]

HEAD = """suite: test
settings:
  plain: {sizes: {n: 1..3}, domain: {A: "real[n, n]", v: "real[n]", c: real, x: positive}}
  net: {model: linear-implicit, sizes: {N: 1..2, d: 1..2, m: 1..3}}
  fixed: {model: implicit-relu, sizes: {N: 4, d: 3, m: 2}}
claims:
"""

BODIES = {
    "holds": "setting: plain, conclude: norm(A) <= fro(A)",
    "refuted": "setting: plain, conclude: fro(A) < 0",
    "vacuous": "setting: fixed, assume: {wide: N <= m}, conclude: sigma_min(Z) >= 0",
    "undecided": "setting: net, conclude: fro(Z) >= 0",
    "ill-formed": "setting: plain, conclude: fro(A*v*A) >= 0",
}


@dataclass(frozen=True)
class Ran:
    """What a call gave: exit code, output with runs of blanks made one, the raw output, standard error."""

    code: int
    out: str
    raw: str
    err: str


def squeezed(text):
    return re.sub(r"\s+", " ", text)


def suite(folder, *entries, head=HEAD, name="suite.yaml"):
    path = Path(folder) / name
    path.write_text(head + "".join(f"  - {{{entry}}}\n" for entry in entries), encoding="utf-8")
    return str(path)


def call(capsys, *words):
    """Run the command in this process."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return Ran(code, squeezed(captured.out), captured.out, captured.err)


def spawn(*words, folder, **options):
    """Start the command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finished(process, timeout=100):
    out, err = process.communicate(timeout=timeout)
    assert "Traceback" not in out + err, out + err
    return Ran(process.returncode, squeezed(out), out, err)


def results(folder, name="results"):
    lines = (Path(folder) / name / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
