"""Output that goes nowhere, terminals of any width and encoding, signals: results and exit codes stay right."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest
from command_line_harness import BODIES, COMMAND, RESTORED, call, results, suite

from ntk_deq import cli
from ntk_deq.cli import Interruption, UnfailingFile, session

QUICK = ("--instances", "4", "--search", "0", "--no-store")
LONG = pytest.mark.long
FIGURES = [sys.executable, "-c", f"{RESTORED}; from ntk_deq.cli.figures import run; run()"]
QUICK_COMMANDS = [
    (("check", "suite.yaml"), 0),
    (("check", "missing.yaml"), 4),
    (("suite.yaml", "--list"), 0),
    (("schema",), 0),
    (("schema", "--output", "/dev/full"), 4),
    (("--help",), 0),
    (("--version",), 0),
    (("suite.yaml", "--nonsense"), 4),
    (("suite.yaml", "-k", "zzz"), 5),
]
LOST = [">/dev/full 2>/dev/full", *(pytest.param(r, marks=LONG) for r in (">&-", "<&- >&- 2>&-", ">/dev/full", "2>&-"))]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(redirection, *words, command=COMMAND, **environment):
    """Run a command through a shell that closes or redirects its output."""
    return subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *command, *map(str, words)],
        env=os.environ | environment,
        capture_output=True,
        timeout=100,
        check=False,
    )


class TestOutputThatIsLost:
    @pytest.mark.parametrize("redirection", LOST)
    def test_a_run_goes_on_and_its_code_is_the_right_one(self, folder, redirection):
        path = suite(folder, f"id: a, {BODIES['holds']}", f"id: b, {BODIES['ill-formed']}")
        ran = shell(redirection, path, *QUICK)
        assert ran.returncode == 4
        assert ran.stderr == b""
        assert [r["verdict"] for r in results(folder)] == ["holds", "ill-formed"]
        assert json.loads((folder / "results" / "run.json").read_text())["exit_code"] == 4
        assert (folder / "results" / "report.html").read_text(encoding="utf-8").endswith("</html>\n")
        ET.parse(folder / "results" / "junit.xml")

    @pytest.mark.parametrize(
        ("redirection", "words", "code"),
        [
            (">&- 2>&-", ("replay", "kept/counterexamples/b.yaml"), 0),
            (">/dev/full", ("mutate", "suite.yaml", "--max", "2", "--instances", "4", "--search", "0"), 0),
            *((">/dev/full", *command) for command in QUICK_COMMANDS),
            *(pytest.param(">&- 2>&-", *command, marks=LONG) for command in QUICK_COMMANDS),
        ],
    )
    def test_every_command(self, folder, capsys, redirection, words, code):
        path = suite(folder, f"id: a, {BODIES['holds']}", f"id: b, expect: refuted, {BODIES['refuted']}")
        if words[0] == "replay":
            assert call(capsys, path, *QUICK, "--out", "kept").code == 0
        ran = shell(redirection, *words)
        assert ran.returncode == code, ran.stderr
        assert b"Traceback" not in ran.stderr
        assert b"Exception ignored" not in ran.stderr
        assert (folder / "results" / "mutants.md").exists() is (words[0] == "mutate")

    @pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "2>&-", "| true"])
    def test_figures(self, folder, redirection):
        pytest.importorskip("matplotlib")
        ran = shell(f"{redirection}", "missing", command=FIGURES)
        assert ran.returncode == (0 if "|" in redirection else 4)  # of a pipeline it is that of `true`
        assert b"Traceback" not in ran.stderr

    def test_no_file_gets_the_number_of_a_closed_descriptor(self, folder):
        """What a library writes to descriptor 1 would land in the first file that is opened."""
        script = (
            "import os, sys\nfrom ntk_deq.cli import run_process\n"
            "def main(words):\n"
            "    with open('file', 'w') as stream:\n        os.write(1, b'noise')\n        os.write(2, b'noise')\n"
            "        return stream.fileno()\n"
            "run_process('x', main)\n"
        )
        ran = shell("<&- >&- 2>&-", command=[sys.executable, "-c", script])
        assert ran.returncode > 2
        assert (folder / "file").read_bytes() == b""

    def test_a_pipe_that_does_not_wait(self):
        read, write = os.pipe()
        os.set_blocking(write, False)
        stream = UnfailingFile(write, "w")
        child = os.fork()
        if child == 0:
            os.close(write)
            total = 0
            while block := os.read(read, 65536):
                total += len(block)
            os._exit(0 if total == 1_000_000 else 1)
        os.close(read)
        left = memoryview(bytes(1_000_000))
        while left:
            left = left[stream.write(left) :]
        stream.close()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_a_disk_that_fills_up_cuts_no_line_of_the_results(self, folder):
        path = suite(folder, *(f"id: c{k}, {BODIES['holds']}" for k in range(30)))
        script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); {COMMAND[2]}"
        ran = subprocess.run(
            [sys.executable, "-c", script, path, *QUICK], capture_output=True, text=True, timeout=100, check=False
        )
        assert ran.returncode == 4
        assert "the results cannot be written: " in ran.stdout
        content = (folder / "results" / "results.jsonl").read_bytes()
        assert content.endswith(b"\n")
        assert 0 < len(content) <= 9000
        assert json.loads(content.splitlines()[0])["id"] == "c0"
        assert {p.name for p in (folder / "results").iterdir()} == {"results.jsonl"}
        assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


class TestTerminals:
    @pytest.mark.parametrize("columns", ["0", "-5", "²", "many", "", "9" * 5000, "100000"])
    def test_a_width_that_is_none_is_not_believed(self, folder, capsys, monkeypatch, columns):
        path = suite(folder, f"id: a, {BODIES['holds']}")
        monkeypatch.setenv("COLUMNS", "80")
        usual = call(capsys, "check", path).raw
        assert "norm(A) <= fro(A)" in usual
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("LINES", columns)
        assert call(capsys, "check", path).raw == usual
        assert call(capsys, "--help").code == 0

    @pytest.mark.parametrize("columns", ["1", "7", "20", "40"])
    def test_a_narrow_one_shows_everything(self, folder, capsys, monkeypatch, columns):
        monkeypatch.setenv("COLUMNS", columns)
        path = suite(folder, f"id: a, {BODIES['holds']}", f"id: b, {BODIES['refuted']}")
        ran = call(capsys, path, *QUICK)
        assert ran.code == 1
        assert "holds" in ran.out
        assert "refuted" in ran.out

    @pytest.mark.parametrize(
        "environment",
        [
            {"PYTHONIOENCODING": "ascii:strict"},
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"PYTHONIOENCODING": "latin-1"},
        ],
    )
    @pytest.mark.parametrize("words", [("suite.yaml", "--list"), ("check", "suite.yaml")])
    def test_one_without_unicode(self, folder, environment, words):
        suite(folder, f'id: a, title: "Übung γ ≤ 1, 字", {BODIES["holds"]}')
        ran = shell("", *words, COLUMNS="120", **environment)
        assert ran.returncode == 0, ran.stderr
        assert rb"bung \u03b3 <= 1, \u5b57" in ran.stdout
        assert ran.stdout.isascii() or environment == {"PYTHONIOENCODING": "latin-1"}

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
    def test_the_schema_is_json_in_every_encoding(self, encoding):
        ran = shell("", "schema", PYTHONIOENCODING=encoding)
        plain = shell("", "schema", PYTHONIOENCODING="utf-8")
        assert json.loads(ran.stdout.decode(encoding)) == json.loads(plain.stdout)

    def test_a_title_cannot_write_to_the_terminal(self, folder, capsys):
        path = suite(folder, f'id: a, title: "x\\e[31m\\u202e[bold]:smile:\\ny", {BODIES["holds"]}')
        assert call(capsys, path, "--list").raw == "a  x�[31m�[bold]:smile: y\n"


SPAWNED = []


@pytest.fixture(autouse=True)
def nothing_left_running():
    """End what a failed test leaves behind: it would judge for hours beside the tests that follow."""
    yield
    while SPAWNED:
        with SPAWNED.pop() as process:
            process.kill()


def spawned(*words, **options):
    pipe = subprocess.PIPE
    SPAWNED.append(subprocess.Popen([*COMMAND, *map(str, words)], stdout=pipe, stderr=pipe, **options))
    return SPAWNED[-1]


def until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.02)
    assert condition()


class TestSignals:
    CLAIMS = (f"id: first, {BODIES['holds']}, instances: 4", f"id: second, {BODIES['holds']}, instances: 5000000")

    def started(self, folder, **options):
        process = spawned(suite(folder, *self.CLAIMS), "--search", "0", "--no-store", **options)
        stream = folder / "results" / "results.jsonl"
        until(lambda: stream.exists() and stream.read_bytes().startswith(b'{"id": "first"'))
        return process

    def is_partial(self, folder):
        info = json.loads((folder / "results" / "run.json").read_text())
        root = ET.parse(folder / "results" / "junit.xml").getroot()
        marked = root.get("errors") == "1" and root.find(".//testcase[@name='interrupted']/error") is not None
        page = (folder / "results" / "report.html").read_text(encoding="utf-8")
        return (
            [r["id"] for r in results(folder)] == ["first"]
            and info["interrupted"]
            and marked
            and ("interrupted before its end" in page)
        )

    def test_the_terminal_is_closed(self, folder):
        process = self.started(folder)
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=100) == 2
        assert self.is_partial(folder)

    @pytest.mark.parametrize("name", ["SIGTERM", *(pytest.param(name, marks=LONG) for name in ("SIGINT", "SIGHUP"))])
    def test_a_fast_second_signal_does_not_cut_the_report(self, folder, name):
        process = self.started(folder)
        for _ in range(12):
            process.send_signal(getattr(signal, name))
            time.sleep(0.02)
        _, error = process.communicate(timeout=100)
        assert (process.returncode, error) == (2, b"")
        assert self.is_partial(folder)

    def test_what_is_ignored_from_the_start_stays_ignored(self, folder):
        process = self.started(folder, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))  # as `nohup`
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=100)
        assert self.is_partial(folder)

    def test_a_killed_run_leaves_nothing_of_an_earlier_one(self, folder, capsys):
        earlier = suite(folder, f"id: second, {BODIES['refuted']}", name="earlier.yaml")
        call(capsys, earlier, *QUICK)
        assert (folder / "results" / "counterexamples" / "second.yaml").exists()
        process = self.started(folder)
        process.kill()
        process.communicate(timeout=100)
        assert [p.name for p in (folder / "results").iterdir()] == ["results.jsonl"]
        assert [r["id"] for r in results(folder)] == ["first"]

    def test_mutants(self, folder):
        process = spawned("mutate", suite(folder, *self.CLAIMS[1:]), "--time-limit", "50", "--search", "0")
        stream = folder / "results" / "mutants.jsonl"
        until(stream.exists)
        for _ in range(5):
            process.send_signal(signal.SIGHUP)
        _, error = process.communicate(timeout=100)
        assert (process.returncode, error) == (2, b"")
        assert "**Interrupted: not every mutant was judged.**" in (folder / "results" / "mutants.md").read_text()


class TestInterruption:
    @pytest.mark.parametrize("moment", ["while judging", "while writing"])
    def test_what_was_judged_out_of_turn_is_written(self, tmp_path, monkeypatch, moment):
        """Workers judge several claims at once; a result waits for its turn, which an interruption brings at once."""
        written = []

        def append(stream, result):
            written.append(result)
            if moment == "while writing" and result == "first":
                signal.raise_signal(signal.SIGTERM)

        def judged():
            yield "first"
            try:
                signal.raise_signal(signal.SIGTERM)
                yield "never"
            except KeyboardInterrupt:
                yield "third"
                yield "fifth"
                raise

        def judged_meanwhile():
            try:
                yield "first"
                yield "never"
            except KeyboardInterrupt:
                yield "third"
                yield "fifth"
                raise

        monkeypatch.setattr(session, "append_result", append)
        results = []
        with Interruption() as interruption:
            source = judged() if moment == "while judging" else judged_meanwhile()
            assert session._write_down(source, tmp_path / "x", results, interruption)
        assert results == written == ["first", "third", "fifth"]

    def test_the_first_one_is_raised_and_none_soon_after(self, monkeypatch):
        with Interruption() as interruption:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGHUP)
            monkeypatch.setattr(cli, "_AGAIN", 0.0)
            with pytest.raises(KeyboardInterrupt):  # the first one may have been swallowed
                signal.raise_signal(signal.SIGINT)
            interruption.over()
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL

    def test_it_waits_while_a_result_is_written(self):
        with Interruption() as interruption:
            with interruption.held():
                signal.raise_signal(signal.SIGINT)
            assert interruption.noted
