"""What the documentation shows is true: claim files load, snippets run, outputs, verdicts, links and commands agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from doc_blocks import PAGES, ROOT, Block, all_blocks, anchors, blocks, prose, rows, write_claim_files

from ntk_deq import cli as exit_codes
from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.arguments import build_parser
from ntk_deq.cli.main import main
from ntk_deq.cli.select import select_claims
from ntk_deq.dynamics import RunStatus
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge, judge_claims

CLAIM_FILES = [block for block in all_blocks() if block.claim_file is not None]
SNIPPETS = [block for block in all_blocks() if block.info == "python"]
LANGUAGE, CLAIMS, README = ROOT / "docs" / "claim-language.md", ROOT / "docs" / "claims.md", ROOT / "README.md"
TRAINING = ROOT / "docs" / "training.md"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@cache
def papers():
    return load_suite(ROOT / "paper_claims.yaml").claims


def name_of(block: Block) -> str:
    return f"{block.page.name}:{block.claim_file or block.body.splitlines()[0]}"


def ill_formed(path: Path) -> list[str]:
    claims = load_suite(path).claims
    return [str(problem) for claim in claims if isinstance(claim, IllFormed) for problem in claim.problems]


def agrees(printed: str, shown: str) -> bool:
    """Whether two texts agree, numbers to three digits: the last digits belong to the machine."""
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=False)
    close = all(float(a) == pytest.approx(float(b), rel=1e-3, abs=1e-9) for a, b in pairs)
    return close and NUMBER.sub("#", printed) == NUMBER.sub("#", shown)


def test_there_is_something_to_test():
    assert len(CLAIM_FILES) >= 4
    assert {block.page for block in SNIPPETS} == {README, CLAIMS, TRAINING, ROOT / "docs" / "networks.md"}


@pytest.mark.parametrize("block", CLAIM_FILES, ids=name_of)
def test_claim_files_are_well_formed(block, tmp_path):
    (path,) = [p for p in write_claim_files(block.page, tmp_path) if p.name == block.claim_file]
    assert ill_formed(path) == []


@pytest.mark.parametrize("name", ["first.yaml", "mutant.yaml", "systems.yaml"])
def test_claim_files_of_the_reference_come_out_as_expected(name, tmp_path):
    write_claim_files(LANGUAGE, tmp_path)
    results = list(judge_claims(load_suite(tmp_path / name).claims, Options(instances=20, search=0)))
    assert [(r.id, r.verdict) for r in results if not r.as_expected] == []


# Each snippet in a process of its own: modules that it does not import are not loaded there, but for those of torch,
# which every one imports and which take longest.
EACH = """
import os, runpy, sys, torch, torch._dynamo
for folder in sys.argv[1:]:
    if os.fork():
        if os.wait()[1]:
            sys.exit(folder)
    else:
        os.chdir(folder)
        os.dup2(os.open("printed", os.O_CREAT | os.O_WRONLY), 1)
        runpy.run_path("snippet.py", run_name="__main__")
        break
"""


def test_python_snippets_run_and_print_what_is_shown(tmp_path):
    folders = [tmp_path / str(place) for place in range(len(SNIPPETS))]
    for folder, block in zip(folders, SNIPPETS, strict=True):
        assert block.body.startswith("import torch\n")
        folder.mkdir()
        write_claim_files(block.page, folder)
        (folder / "snippet.py").write_text(block.body, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", EACH, *folders],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for folder, block in zip(folders, SNIPPETS, strict=True):
        own = blocks(block.page)
        shown = own[own.index(block) + 1]
        assert shown.info == "text"
        printed = (folder / "printed").read_text(encoding="utf-8")
        assert agrees(printed, shown.body), (name_of(block), printed)


def test_the_guide_to_training_tells_every_ending():
    endings = {
        RunStatus.LOSS_FLOOR: "the loss floor",
        RunStatus.STEPS: "the budget of steps",
        RunStatus.HORIZON: "the horizon",
        RunStatus.WELL_POSEDNESS_LOST: "an equilibrium that is lost",
        RunStatus.DIVERGED: "divergence",
        RunStatus.NOT_FINITE: "NaN",
        RunStatus.STEP_UNDERFLOW: "a step that changes nothing",
        RunStatus.STATIONARY: "a gradient that is zero in every entry",
        RunStatus.UNSOLVED: "an equilibrium that was not found",
        RunStatus.INTERRUPTED: "Ctrl-C",
    }
    assert set(endings) == set(RunStatus)
    (told,) = [line for line in prose(TRAINING).splitlines() if line.startswith("- **`run.status`**")]
    for words in endings.values():
        assert words in told


def test_a_wrong_number_would_be_noticed():
    assert agrees("x = 1.0001, 3 of 4", "x = 1.0, 3 of 4")
    assert not agrees("x = 1.01, 3 of 4", "x = 1.0, 3 of 4")
    assert not agrees("x = 1.0, 3 of 4", "x = 1.0, 3 out of 4")
    assert not agrees("x = 1.0, 3", "x = 1.0")


def console(page: Path, start: str) -> str:
    """Return what a page shows below a command."""
    (body,) = [b.body for b in blocks(page) if b.info == "console" and b.body.startswith(f"$ {start}\n")]
    return body.partition("\n")[2]


def test_the_check_that_the_readme_shows(tmp_path, monkeypatch, capsys):
    write_claim_files(README, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["check", "my_claims.yaml"]) == 0
    assert capsys.readouterr().out.strip() == console(README, "verify-claims check my_claims.yaml").strip()


def test_the_run_that_the_readme_shows(tmp_path, monkeypatch, capsys):
    write_claim_files(README, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    words = [
        "run",
        "my_claims.yaml",
        "--instances",
        "40",
        "--out",
        "results",
        "--search",
        "20",
    ]  # it finds nothing more
    assert main(words) == exit_codes.EXIT_UNEXPECTED
    printed = capsys.readouterr().out
    shown = console(README, "verify-claims my_claims.yaml --instances 40").strip().splitlines()
    timeless = [re.sub(r"\s+\S+ m?s\b", " TIME", line) for line in printed.splitlines()]
    for line in (line for line in shown if "certified" not in line):
        assert line in printed.splitlines()
    for line in (line for line in shown if "refuted" in line):
        assert re.sub(r"\s+\S+ m?s\b", " TIME", line) in timeless
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "counterexamples",
        "junit.xml",
        "report.html",
        "results.jsonl",
        "run.json",
    }
    command = "verify-claims replay results/counterexamples/My.shallow.yaml my_claims.yaml"
    assert main(command.split()[1:]) == exit_codes.EXIT_OK
    replayed = capsys.readouterr().out.splitlines()
    for line in (line for line in console(README, command).strip("\n").splitlines() if line != "  ..."):
        assert line in replayed


def test_the_readme_excerpt_of_the_suite_shows_expected_verdicts():
    selection = "R.L or R.S4"
    claims = select_claims(papers(), selection)
    suite = {claim.id: claim.expect for claim in claims}
    shown = console(README, f'.venv/bin/verify-claims paper_claims.yaml -k "{selection}"')
    lines = re.findall(r"^✓ (R\S+) +(\S+)", shown, re.MULTILINE)
    assert lines
    for name, verdict in lines:
        assert suite[name] == verdict
    (count,) = re.findall(r"^judging (\d+) claims$", shown, re.MULTILINE)
    assert int(count) == len(suite)
    counts = [sum(expect is verdict for expect in suite.values()) for verdict in (Verdict.HOLDS, Verdict.REFUTED)]
    assert f"✓ {counts[0]} holds   ✗ {counts[1]} refuted" in shown


def test_the_readme_lists_every_exit_code():
    table = [row for row in rows(prose(README)) if re.fullmatch(r"\d", row[0])]
    codes = sorted(value for name, value in vars(exit_codes).items() if name.startswith("EXIT_"))
    assert [int(row[0]) for row in table] == codes


def test_options_that_the_readme_names_exist():
    help_texts = [build_parser().format_help()]
    for action in build_parser()._subparsers._group_actions:
        help_texts += [parser.format_help() for parser in action.choices.values()]
    known = set(re.findall(r"--[a-z-]+", "\n".join(help_texts)))
    used = set(re.findall(r"`(--[a-z-]+)", prose(README) + prose(LANGUAGE)))
    assert used
    assert used <= known


def bare(tree: Expr) -> tuple:
    return tree.kind, tree.name, tree.names, tree.operators, tree.value, tuple(bare(child) for child in tree.args)


def test_precedence_examples():
    text = prose(LANGUAGE).partition("| written | read as |")[2].partition("\n\n")[0]
    pairs = [[cell.strip("`") for cell in row] for row in rows(text) if row[0].startswith("`")]
    assert len(pairs) >= 10
    for written, read_as in pairs:
        assert bare(parse(written)) == bare(parse(read_as)), written


YAML_FILE = """\
suite: quoting
settings:
  s:
    sizes: {{n: 1..3, m: 1..3}}
    domain:{domain}
claims:
  - id: a
    setting: s
    conclude: {conclude}
"""


@pytest.mark.parametrize(
    ("domain", "fine"),
    [
        ("\n      v: (0, 1)", True),
        ("\n      v: (0, 1/2]", True),
        ("\n      v: [0, 1]", True),
        ("\n      v: real[n, m]", True),
        ('\n      v: "[0, 1)"', True),
        ("\n      v: [0, 1)", False),
        (" {v: (0, 1), w: positive}", True),
        (" {v: [0, 1], w: positive}", True),
        (' {v: "real[n, m]", w: "(0, 1]"}', True),
        (" {v: real[n, m]}", False),
        (" {v: (0, 1], w: real}", False),
    ],
)
def test_what_the_page_says_about_quotes(domain, fine, tmp_path, capsys):
    path = tmp_path / "quoting.yaml"
    path.write_text(YAML_FILE.format(domain=domain, conclude="{q: max(n, m) >= 1}"), encoding="utf-8")
    assert (main(["check", str(path)]) == 0) is fine


def verdict_rows() -> dict[str, str]:
    table = rows(prose(CLAIMS))
    cells = [(row[0], row[2] if len(row) == 4 else row[1]) for row in table if re.match(r"[A-Z]\w*\.", row[0])]
    assert len(cells) == len(dict(cells))
    return dict(cells)


def test_the_table_of_claims_is_the_suite():
    expected = {claim.id: claim.expect.value for claim in papers()}
    numbers = {claim.id for claim in papers() if "scalar" in claim.tags}  # listed by file, not one by one
    listed = verdict_rows()
    assert listed.items() <= expected.items()
    unlisted = expected.keys() - listed.keys()
    assert unlisted <= numbers
    assert {expected[name] for name in unlisted} == {"proved"}
    for path in sorted((ROOT / "checks").glob("*scalar*.yaml")):
        assert f"`checks/{path.name}`" in prose(CLAIMS)


def test_every_claim_that_holds_has_a_mutant():
    mutated = set()
    for path in (ROOT / "checks" / "mutants").glob("*.yaml"):
        mutated |= {claim.mutates for claim in load_suite(path).claims if isinstance(claim, Claim)}
    assert mutated >= {name for name, verdict in verdict_rows().items() if verdict == "holds"}


def test_counterexamples_worked_out_by_hand(tmp_path):
    write_claim_files(CLAIMS, tmp_path)
    results = {c.id: judge(c, Options(instances=8, search=0)) for c in load_suite(tmp_path / "by_hand.yaml").claims}
    assert {(r.verdict, r.evidence) for r in results.values()} == {(Verdict.REFUTED, Evidence.CERTIFIED)}
    sides = {name: (r.counterexample.lhs, r.counterexample.rhs) for name, r in results.items() if r.counterexample}
    numbers = {name: tuple(float(side.split(" ")[0].replace("…", "")) for side in pair) for name, pair in sides.items()}
    assert numbers["strict.decrease"] == (0.5, 0.5)
    assert numbers["strict.eigenvalue"] == (0.5, 0.5)
    assert numbers["factor.M"] == pytest.approx((2 / 9, 2 / 3))
    assert numbers["factor.P"] == pytest.approx((2 / 3, 2))
    assert numbers["loose.M"] == (0.5, 1)
    assert numbers["loose.P"] == (1, 2)
    assert numbers["tall.M"][0] == pytest.approx(0, abs=1e-12)
    assert numbers["tall.P"] == pytest.approx((0, 2), abs=1e-12)


TUTORIAL = ROOT / "docs" / "tutorial.md"
MU = "max(diag(A) + abs(A)*ones(n) - abs(diag(A)))"
BOUND = "norminf(at(x, w = v) - x) <= norminf(B)/(1 - max(mu, 0))*norminf(v - w)"


def tutorial_file(changes=(), assume=""):
    """The claim file as it stands on the way through the tutorial, with texts replaced."""
    (final,) = [block.body for block in blocks(TUTORIAL) if block.claim_file is not None]
    settings = final[final.index("settings:") : final.index("  - id:")]
    head, entry = final[: final.index("    define:")] + "\n" + settings, final[final.index("  - id: J.Lipschitz") :]
    entry = entry[: entry.index("    assume:")] + f"    let: {{mu: {MU}}}\n" + assume + f"    conclude: {BOUND}\n"
    text = head + entry
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def in_words(text):
    """A text without its line breaks and what a machine's speed decides."""
    return re.sub(r"[0-9.]+ (?:ms|s)\b", "TIME", " ".join(text.split()))


def said(path, capsys, *command):
    main([command[0], str(path), *command[1:]])
    printed = capsys.readouterr()
    return in_words((printed.out + printed.err).replace(f"{path}", path.name))


def quoted(*words):
    """What the tutorial shows of some output, the only block with these words."""
    (block,) = [b.body for b in blocks(TUTORIAL) if b.info == "text" and all(word in b.body for word in words)]
    return in_words(block)


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        ("unknown name `Ax`", "relu(A*x", "relu(Ax"),
        ("cannot add", "relu(A*x", "relu(x*A"),
        ("A_ii", MU, "max(A_ii + sum(abs(A_ij)))"),
        ("`x` is no function", "at(x, w = v)", "x(v)"),
        ("norm_inf", "norminf", "norm_inf"),
        ("system implicit-network", "suite", "suite"),
    ],
)
def test_the_tutorial_shows_what_check_prints(words, old, new, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    path = Path("robust.yaml")
    path.write_text(tutorial_file([(old, new)]))
    assert quoted(words) in said(path, capsys, "check")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "changes", "assume"),
    [
        ("margin -2 ", (), ""),
        ("margin -0.118", [("norminf", "norm")], "    assume: {well-posed: mu < 1}\n"),
    ],
)
def test_the_tutorial_shows_what_run_prints(words, changes, assume, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    path = Path("robust.yaml")
    path.write_text(tutorial_file(changes, assume))
    printed, shown = said(path, capsys, "run", "--no-store", "-j", "1"), quoted(words)
    line, _, rest = shown.partition(" conclusion: ")
    assert line in printed
    assert f"conclusion: {rest}" in printed


SHRUNK = {
    "R.L3.1.decrease": ({"W": 0, "A": 0, "b": 0, "X": 0}, "0 < 0"),
    "R.L3.2": ({"W": 1, "A": 1, "b": 0, "X": 1}, "0.5 > 0.5"),
    "R.S4M": ({"W": 1, "A": 0, "b": 1, "X": 1}, "0.5 >= 1"),
    "R.S4P": ({"W": 1, "A": 0, "b": 1, "X": 1}, "1 >= 2"),
}


@pytest.mark.parametrize("name", SHRUNK)
def test_shrunk_counterexamples(name):
    (claim,) = [claim for claim in papers() if claim.id == name]
    shown = judge(claim, Options(instances=12, search=0)).counterexample
    assert shown is not None
    assert shown.sizes == {"N": 1, "d": 1, "m": 1}
    values = {
        key: torch.as_tensor(value, dtype=torch.float64).flatten().tolist() for key, value in shown.values.items()
    }
    expected = {**SHRUNK[name][0], "y": 0, "gamma": 0.5, "M": 1}
    assert values == {key: [value] for key, value in expected.items()}
    assert f"{shown.lhs} {shown.relation} {shown.rhs}" == SHRUNK[name][1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    shown = re.sub(r"`[^`\n]*`", "code", prose(page))  # f[l](z) in code is no link
    for target in re.findall(r"\]\(([^)\s]+)\)", shown):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_commands_that_are_named_exist(page):
    text = page.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"(?:`|^\$ )make ([a-z]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"
    for module in re.findall(r"python -m benchmarks\.(\w+)", text):
        assert (ROOT / "benchmarks" / f"{module}.py").exists(), module
    folders = r"(?:ntk_deq|tests|docs|checks|benchmarks|notebooks)"
    for name in re.findall(rf"`({folders}/[\w./]+)`", text):
        assert name.endswith("NAME.py") or (ROOT / name).exists(), name
