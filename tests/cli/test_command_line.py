"""The command line end to end: exit codes, flags, files written, interruption, start-up without heavy imports."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from command_line_harness import BODIES, COMMAND, call, finished, results, spawn, squeezed, suite
from processes import alive, children, eventually

from ntk_deq.cli import session
from ntk_deq.verify import trial

QUICK = ("--search", "0", "--no-store")
FEW = ("--instances", "12", *QUICK)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


class TestExitCodes:
    @pytest.mark.parametrize(
        ("real", "expected", "code"),
        [
            ("holds", "holds", 0),
            ("refuted", "refuted", 0),
            ("vacuous", "vacuous", 0),
            ("undecided", "undecided", 0),
            ("ill-formed", "ill-formed", 0),
            ("refuted", "holds", 1),
            ("holds", "refuted", 1),
            ("vacuous", "refuted", 1),
            ("undecided", "refuted", 1),
            ("holds", "vacuous", 1),
            ("holds", "ill-formed", 1),
            ("ill-formed", "holds", 4),
            ("vacuous", "holds", 6),
            ("undecided", "holds", 6),
        ],
    )
    def test_a_verdict_and_what_was_expected(self, capsys, folder, real, expected, code):
        ran = call(capsys, suite(folder, f"id: a, expect: {expected}, {BODIES[real]}"), *FEW)
        assert ran.code == code
        assert f"exit {code}: " in ran.out
        (result,) = results(folder)
        assert (result["verdict"], result["expected"]) == (real, expected)
        assert json.loads((folder / "results" / "run.json").read_text())["exit_code"] == code

    def test_the_gravest_counts(self, capsys, folder):
        bodies = [f"id: c{k}, {BODIES[name]}" for k, name in enumerate(BODIES)]
        assert call(capsys, suite(folder, *bodies), *FEW).code == 4
        assert call(capsys, suite(folder, *bodies[:4]), *FEW).code == 1
        assert call(capsys, suite(folder, bodies[0], *bodies[2:4]), *FEW).code == 6

    def test_an_internal_error_is_3_and_the_others_are_judged(self, capsys, folder, monkeypatch):
        real = trial.judge_instance

        def breaks(claim, instance, **options):
            if claim.id == "b":
                raise ZeroDivisionError("made up")
            return real(claim, instance, **options)

        monkeypatch.setattr(trial, "judge_instance", breaks)
        path = suite(folder, *(f"id: {name}, {BODIES['holds']}" for name in "abc"), f"id: d, {BODIES['ill-formed']}")
        code = session_code(path)
        shown = squeezed(capsys.readouterr().out)
        assert code == 3
        assert "ZeroDivisionError: made up" in shown
        assert [r["verdict"] for r in results(folder)] == ["holds", "error", "holds", "ill-formed"]
        assert "Traceback" in results(folder)[1]["trace"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ((), "usage"),
            (("--nonsense",), "unrecognized arguments: --nonsense"),
            (("suite.yaml", "--nonsense"), "unrecognized arguments: --nonsense"),
            (("suite.yaml", "--instances", "0"), "must be a whole number from 1 to 10,000,000. Got 0."),
            (("suite.yaml", "--instances", "many"), "must be a whole number. Got 'many'."),
            (("suite.yaml", "--seed", "-1"), "must be a whole number >= 0. Got -1."),
            (("suite.yaml", "--time-limit", "0"), "must be a number of seconds > 0. Got '0'."),
            (("suite.yaml", "--time-limit", "nan"), "must be a number of seconds > 0. Got 'nan'."),
            (("suite.yaml", "--dtype", "float16"), "invalid choice: 'float16'"),
            (("suite.yaml", "--allow", "refuted"), "must be among vacuous, undecided"),
            (("suite.yaml", "--device", "nonsense"), "`--device` must be cpu, cuda or cuda:N. Got 'nonsense'."),
            (("suite.yaml", "--device", "meta"), "`--device` must be cpu, cuda or cuda:N. Got 'meta'."),
            (("suite.yaml", "--device", "cuda:99"), "`--device` cuda:99 is not there: "),
            (("suite.yaml", "-k", "a and"), "`-k` cannot be read: it ends too early."),
            (("suite.yaml", "--papers"), "give a claim FILE, or --papers"),
            (("check",), "give a claim FILE, or --papers"),
            (("missing.yaml",), "missing.yaml"),
            (("check", "missing.yaml"), "missing.yaml"),
            (("schema", "--output", "no/such/folder/schema.json"), "cannot write no/such/folder/schema.json"),
        ],
    )
    def test_usage_is_4_with_one_message(self, capsys, folder, words, message):
        suite(folder, f"id: a, {BODIES['holds']}")
        ran = call(capsys, *words)
        assert ran.code == 4
        assert message in ran.out + squeezed(ran.err)

    @pytest.mark.parametrize("command", ["run", "check"])
    def test_no_claim_selected_is_5(self, capsys, folder, command):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        assert call(capsys, command, path, "-k", "zzz").code == 5
        assert not (folder / "results").exists()
        empty = folder / "empty.yaml"
        empty.write_text("suite: s\nclaims: []\n")
        assert call(capsys, command, empty).code == 5


def session_code(path):
    from ntk_deq.cli.main import main

    return main([path, *FEW])


class TestFlags:
    def test_run_is_the_default_command(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        assert call(capsys, "run", path, *FEW).code == call(capsys, path, *FEW).code == 0
        assert call(capsys, *FEW, path).code == 0

    def test_list_shows_what_is_selected_and_runs_nothing(self, capsys, folder):
        path = suite(folder, "id: a, title: First, tags: [x, y], " + BODIES["holds"], "id: b, " + BODIES["ill-formed"])
        ran = call(capsys, path, "--list")
        assert ran.code == 0
        assert ran.raw.splitlines() == ["a  First  [x, y]", "b"]
        assert call(capsys, path, "--list", "-k", "x").raw.splitlines() == ["a  First  [x, y]"]
        assert not (folder / "results").exists()

    def test_seed_and_instances(self, capsys, folder):
        path = suite(folder, "id: a, setting: plain, conclude: norm(A) <= fro(A)")
        lines = {}
        for seed in ("3", "3", "4"):
            assert call(capsys, path, "--seed", seed, "--instances", "17", *QUICK).code == 0
            (result,) = results(folder)
            assert (result["seed"], result["instances"]) == (int(seed), 17)
            result.pop("seconds")
            lines.setdefault(seed, []).append(json.dumps(result))
        assert lines["3"][0] == lines["3"][1] != lines["4"][0]

    def test_single_precision(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        assert call(capsys, path, "--dtype", "float32", *FEW).code == 0
        assert results(folder)[0]["dtype"] == "float32"

    def test_the_time_limit(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}", f"id: b, {BODIES['refuted']}")
        ran = call(capsys, path, "--time-limit", "0.5", "--instances", "1000000", *QUICK)
        assert ran.code == 1
        first, second = results(folder)
        assert first["verdict"] == "undecided"
        assert "the time limit of 0.5 s ran out after" in first["reason"]
        assert second["verdict"] == "refuted"

    def test_stop_early(self, capsys, folder):
        path = suite(folder, *(f"id: {n}, {BODIES[b]}" for n, b in (("a", "holds"), ("b", "refuted"), ("c", "holds"))))
        ran = call(capsys, path, "-x", *FEW)
        assert ran.code == 1
        assert [r["id"] for r in results(folder)] == ["a", "b"]
        assert "2 claims of 3" in ran.out

    def test_allow(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['vacuous']}", f"id: b, {BODIES['undecided']}")
        assert call(capsys, path, *FEW).code == 6
        assert call(capsys, path, "--allow", "vacuous", *FEW).code == 6
        assert call(capsys, path, "--allow", "vacuous, undecided", *FEW).code == 0
        refuted = suite(folder, f"id: a, {BODIES['refuted']}", name="other.yaml")
        assert call(capsys, refuted, "--allow", "vacuous,undecided", *FEW).code == 1

    def test_out_is_made_and_written(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        ran = call(capsys, path, "--out", "deep/er", *FEW)
        assert ran.code == 0
        assert {p.name for p in (folder / "deep" / "er").iterdir()} == {
            "results.jsonl",
            "junit.xml",
            "report.html",
            "run.json",
        }
        assert "deep/er/report.html" in ran.out

    @pytest.mark.parametrize(
        "blocked", ["out", "out/results.jsonl", "out/junit.xml", "out/report.html", "out/run.json"]
    )
    def test_out_that_cannot_be_written(self, capsys, folder, blocked):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        if blocked == "out":
            (folder / "out").write_text("a file")
        else:
            (folder / blocked).mkdir(parents=True)
            (folder / blocked / "full").write_text("in the way")
        ran = call(capsys, path, "--out", "out", *FEW)
        assert ran.code == 4
        assert "verify-claims: " in ran.out

    def test_a_full_disk_in_the_middle(self, capsys, folder, monkeypatch):
        def full(stream, result):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(session, "append_result", full)
        ran = call(capsys, suite(folder, f"id: a, {BODIES['holds']}"), *FEW)
        assert ran.code == 4
        assert "No space left on device" in ran.out

    def test_papers_is_the_carried_suite(self, capsys):
        ran = call(capsys, "--papers", "--list")
        assert ran.code == 0
        assert any(line.startswith("R.L3.1 ") for line in ran.raw.splitlines())

    def test_data_lets_a_file_elsewhere_be_read(self, capsys, folder):
        (folder / "claims").mkdir()
        (folder / "data.npz").write_bytes(b"not an archive")
        setting = (
            "suite: s\nsettings:\n  digits: {model: linear-implicit, sizes: {N: 4, d: 9, m: 2}, "
            "images: {source: npz, images: ../data.npz}}\nclaims:\n"
        )
        path = suite(folder / "claims", "id: a, setting: digits, conclude: fro(X) >= 0", head=setting)
        refused = call(capsys, path, *FEW)
        assert refused.code == 4
        assert "data.npz" in refused.out
        allowed = call(capsys, path, "--data", folder / "data.npz", *FEW)
        assert allowed.code == 6
        assert "its data cannot be had" in results(folder)[0]["reason"]

    def test_jobs_and_memory(self, capsys, folder, monkeypatch):
        real, asked = session.judge_in_workers, []
        monkeypatch.setattr(session, "judge_in_workers", lambda *words, **how: asked.append(how) or real(*words, **how))
        path = suite(folder, *(f"id: {name}, {BODIES['holds']}" for name in "abc"), f"id: d, {BODIES['ill-formed']}")
        assert call(capsys, path, "-j", "2", "--memory", "1G", *FEW).code == 4
        assert (asked[0]["jobs"], asked[0]["memory"], asked[0]["costs"]) == (2, 10**9, {})
        assert call(capsys, path, "-j", "100", *FEW).code == 4
        assert asked[1]["jobs"] == 3  # no more than there are claims to judge, since they share the memory
        assert asked[1]["costs"].keys() == {"a", "b", "c", "d"}
        lines = ('{"id": "a", "seconds": 1e400}', '{"id": 3, "seconds": 1}', '{"id": "b", "seconds": 2}', '{"id": "c"}')
        (folder / "results" / "results.jsonl").write_text("\n".join(lines))
        assert call(capsys, path, *FEW).code == 4
        assert asked[2]["costs"] == {"b": 2.0}
        assert 1 <= asked[2]["jobs"] <= 3
        assert call(capsys, path, "-j", "0").code == 4

    def test_threads(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        assert call(capsys, path, "--threads", "1", *FEW).code == 0
        assert call(capsys, path, "--threads", "0").code == 4


class TestFiles:
    def test_results_have_what_the_issue_asks_for(self, capsys, folder):
        bodies = [f"id: {name}, title: T, where: W, tags: [t], {body}" for name, body in BODIES.items()]
        call(capsys, suite(folder, *bodies), "--seed", "7", *FEW)
        found = {r["id"]: r for r in results(folder)}
        assert list(found) == list(BODIES)
        for name, result in found.items():
            keys = ("id", "verdict", "evidence", "expected", "instances", "met", "worst_margin", "seed", "seconds")
            assert set(keys) | {"reason"} <= set(result)
            assert result["verdict"] == name
            assert result["seed"] == 7
            assert 0 <= result["met"] <= result["instances"]
            assert (result["reason"] == "") is (name == "holds")
            assert isinstance(result["seconds"], float)
        lo, hi = found["refuted"]["worst_margin"]
        assert lo <= hi < 0
        assert found["holds"]["evidence"] == "certified"
        assert found["vacuous"]["worst_margin"] is None
        assert found["vacuous"]["met"] == 0
        assert found["refuted"]["counterexample"]["values"]["A"]

    def test_junit_counts(self, capsys, folder):
        call(capsys, suite(folder, *(f"id: {name}, {body}" for name, body in BODIES.items())), *FEW)
        root = ET.parse(folder / "results" / "junit.xml").getroot()
        kinds = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
        tags = {name: kind[:1] for name, kind in kinds.items()}
        assert tags["refuted"] == ["failure"]
        assert tags["ill-formed"] == ["error"]
        assert tags["vacuous"] == tags["undecided"] == ["skipped"]
        assert "failure" not in kinds["holds"] + kinds["vacuous"]

    def test_the_report_is_one_page_of_its_own(self, capsys, folder):
        call(capsys, suite(folder, f"id: a, title: Nonnegative, {BODIES['holds']}"), *FEW)
        page = (folder / "results" / "report.html").read_text(encoding="utf-8")
        assert "Nonnegative" in page
        assert "<math" in page
        assert 'src="http' not in page

    def test_an_earlier_run_is_replaced(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}", f"id: b, {BODIES['holds']}")
        call(capsys, path, *FEW)
        call(capsys, path, "-k", "b", *FEW)
        assert [r["id"] for r in results(folder)] == ["b"]


class TestSchemaAndCheck:
    def test_schema_is_json_and_goes_where_it_is_sent(self, capsys, folder):
        ran = call(capsys, "schema")
        assert ran.code == 0
        schema = json.loads(ran.raw)
        assert "claims" in schema["properties"]
        assert call(capsys, "schema", "--output", "schema.json").raw == ""
        assert json.loads((folder / "schema.json").read_text()) == schema

    def test_check_prints_formulas_with_shapes_and_runs_nothing(self, capsys, folder):
        path = suite(folder, "id: a, setting: plain, let: {B: A*A}, conclude: fro(B*v) >= 0")
        ran = call(capsys, "check", path)
        assert ran.code == 0
        assert "fro(B*v) >= 0" in ran.out
        assert "matrix n x n" in ran.out
        assert not (folder / "results").exists()

    def test_check_shows_what_is_wrong_where(self, capsys, folder):
        path = suite(folder, f"id: a, {BODIES['ill-formed']}", f"id: b, {BODIES['holds']}")
        ran = call(capsys, "check", path)
        assert ran.code == 4
        assert "suite.yaml:7:" in "".join(ran.raw.split())  # a long path is broken anywhere
        assert "cannot multiply" in ran.out
        assert "^" in ran.out
        expected = suite(folder, f"id: a, expect: ill-formed, {BODIES['ill-formed']}", name="expected.yaml")
        assert call(capsys, "check", expected).code == 0


class TestStartUp:
    """In a process of its own, since this one has imported everything."""

    PROBE = (
        "import sys\nfrom ntk_deq.cli.main import main\nfor words in {commands!r}:\n"
        "    try:\n        code = main(words)\n    except SystemExit as stop:\n        code = stop.code\n"
        "    heavy = set(sys.modules) & {{'torch', 'numpy', 'scipy', 'sympy', 'pydantic'}}\n"
        "    print(code, sorted(heavy), file=sys.stderr)"
    )

    def heavy(self, *commands, folder):
        script = self.PROBE.format(commands=[[str(word) for word in words] for words in commands])
        ran = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=100)
        assert ran.returncode == 0, ran.stderr
        return ran.stderr.strip().splitlines()

    def test_what_each_command_imports(self, folder):
        path = suite(folder, f"id: a, {BODIES['holds']}", f"id: b, {BODIES['vacuous']}")
        papers = Path(__file__).parent.parent.parent / "paper_claims.yaml"
        light = ["--help"], ["run", "--help"], ["--version"]
        checks = ["check", path], [path, "--list"], ["check", papers]
        assert self.heavy(*light, *checks, folder=folder) == ["0 []"] * 3 + ["0 ['pydantic']"] * 3

    def test_the_help_names_every_exit_code_and_flag(self, capsys):
        shown = call(capsys, "--help").out
        assert all(f" {code} " in shown for code in range(7))
        shown = call(capsys, "run", "--help").out
        flags = (
            "-k -j --list --seed --instances --device --dtype --time-limit --memory -x --allow --out --papers --data"
        )
        assert all(flag in shown for flag in [*flags.split(), "--threads"])


class TestInterruption:
    CLAIMS = (
        f"id: first, {BODIES['holds']}, instances: 5",
        f"id: second, {BODIES['holds']}, instances: 5000000",
        f"id: third, {BODIES['holds']}, instances: 5",
    )

    @pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.long)])
    def test_what_was_judged_is_kept(self, folder, name):
        process = spawn(suite(folder, *self.CLAIMS), "-j", "1", *QUICK, folder=folder)
        stream = folder / "results" / "results.jsonl"
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and not (stream.exists() and stream.read_text().endswith("\n")):
            time.sleep(0.05)
        process.send_signal(getattr(signal, name))
        ran = finished(process)
        assert ran.code == 2
        assert "interrupted" in ran.out
        assert [r["id"] for r in results(folder)] == ["first"]
        assert "first" in (folder / "results" / "report.html").read_text(encoding="utf-8")
        assert ET.parse(folder / "results" / "junit.xml").getroot() is not None
        info = json.loads((folder / "results" / "run.json").read_text())
        assert (info["interrupted"], info["exit_code"]) == (True, 2)

    @pytest.mark.skipif(sys.platform != "linux", reason="workers are looked for in /proc")
    @pytest.mark.parametrize(
        "name", ["SIGINT", *(pytest.param(name, marks=pytest.mark.long) for name in ("SIGTERM", "SIGKILL"))]
    )
    def test_no_worker_is_left(self, folder, name):
        """The signal goes to every process, as from a terminal; a second one comes at once."""
        process = spawn(suite(folder, *self.CLAIMS[1:]), "-j", "2", *QUICK, folder=folder, start_new_session=True)
        eventually(lambda: len(children(process.pid)) == 2)
        workers = children(process.pid)
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, getattr(signal, name)) if name != "SIGKILL" else process.kill()
        process.communicate(timeout=100)
        assert process.returncode in (2, -getattr(signal, name))
        eventually(lambda: not any(map(alive, workers)))

    def test_before_anything_is_judged(self, folder, monkeypatch):
        """While the file is read, there is nothing to keep, and still no traceback."""
        script = (
            "import ntk_deq.claims.load as load\n"
            "def stopped(*args, **options):\n    raise KeyboardInterrupt\n"
            "load.load_suite = stopped\n"
            "import sys\nsys.argv = ['verify-claims', 'suite.yaml']\n"
            "from ntk_deq.cli.main import run\nrun()\n"
        )
        ran = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=100)
        assert ran.returncode == 2
        assert ran.stderr == "verify-claims: interrupted\n"

    def test_a_reader_that_goes_away_loses_no_result(self, folder):
        path = suite(folder, *(f"id: c{k}, {BODIES['holds']}, instances: 3" for k in range(40)))
        with spawn(path, *QUICK, folder=folder) as process:
            process.stdout.readline()
            process.stdout.close()
            error = process.stderr.read()
            assert process.wait(timeout=100) == 0
        assert error == ""
        assert len(results(folder)) == 40
        assert (folder / "results" / "report.html").exists()

    def test_a_reader_that_goes_away(self, folder):
        path = suite(folder, *(f"id: c{k}, {BODIES['holds']}" for k in range(400)))
        with spawn(path, "--list", folder=folder) as process:
            process.stdout.close()
            error = process.stderr.read()
            assert process.wait(timeout=100) == 0
        assert "Traceback" not in error
        assert "Exception ignored" not in error


def test_the_installed_command(folder):
    script = Path(sys.executable).parent / "verify-claims"
    if not script.exists():
        pytest.skip("the package is not installed with its script")
    ran = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0
    assert ran.stdout.startswith("ntk_deq ")
    assert COMMAND[0] == sys.executable
