"""The command `convergence-figures`: what it draws, what it says of files that it cannot use, its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings

import pytest
from training_samples import broken_record, short_window, training_record, training_result

from ntk_deq.cli import figures
from ntk_deq.report.jsonl import StoredRuns, append_result

SMALL = training_record(at=(0.0, 10.0, 100.0, 200.0))


@pytest.fixture
def results(tmp_path):
    """A folder of results: a claim with two runs, one without, a mutant with one."""
    folder = tmp_path / "results"
    folder.mkdir()
    stream = folder / "results.jsonl"
    append_result(stream, training_result(SMALL, short_window()))
    append_result(stream, training_result(id="R.L5.1", tags=("lemma",)))
    append_result(stream, training_result(broken_record(), id="R.T4.4.m1", title="A mutant", tags=("mutant",)))
    return folder


@pytest.fixture
def call(capsys):
    def run(*words):
        try:
            code = figures.main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out, captured.err

    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_figure_a_run_and_an_overview(call, results):
    code, out, err = call(results, "--format", "png")
    assert (code, err) == (0, "")
    stems = ["R.T4.4-tiny-3-run", "R.T4.4-tiny-3-window", "R.T4.4.m1-tiny-3-run", "rates"]
    assert names(results / "figures") == [f"{stem}.png" for stem in stems]
    assert out.splitlines()[-1] == "3 runs drawn"
    assert str(results / "figures" / "R.T4.4-tiny-3-run.png") in out


def test_selection_formats_folder_and_a_file_in_place_of_the_folder(call, results, tmp_path):
    code, out, _ = call(results / "results.jsonl", "-k", "t4.4 and not mutant", "--format", "PNG, png", "--out",
                        tmp_path / "a" / "b")  # fmt: skip
    assert code == 0
    assert names(tmp_path / "a" / "b") == ["R.T4.4-tiny-3-run.png", "R.T4.4-tiny-3-window.png", "rates.png"]
    assert "2 runs drawn" in out
    assert names(results) == ["results.jsonl"]


def test_a_single_run_needs_no_overview(call, results):
    code, out, _ = call(results, "-k", "mutant")
    assert code == 0
    assert names(results / "figures") == ["R.T4.4.m1-tiny-3-run.pdf", "R.T4.4.m1-tiny-3-run.png"]
    assert out.endswith("1 run drawn\n")


def test_runs_of_one_name_get_files_of_their_own():
    claims = [StoredRuns(name, "", (), (SMALL, SMALL)) for name in ("a b", "A-B")]
    stems = [stem for stem, _, _ in figures._stems(claims)]
    assert stems == ["a-b-tiny-3-run", "a-b-tiny-3-run-2", "A-B-tiny-3-run-3", "A-B-tiny-3-run-4"]


def test_damaged_lines_are_named_and_the_others_drawn(call, results):
    stream = results / "results.jsonl"
    lines = stream.read_text().splitlines()
    bad = json.loads(lines[0])
    bad["runs"][0]["loss"] = None
    stream.write_text("\n".join([json.dumps(bad), lines[2], lines[0][:500]]))
    code, out, err = call(results, "--format", "svg")
    assert code == 4
    assert f"convergence-figures: {stream}:1: `runs[0].loss` must be a list. Got None." in err
    assert f"{stream}:3: the line is cut off" in err
    assert names(results / "figures") == ["R.T4.4.m1-tiny-3-run.svg"]
    assert "1 run drawn" in out


def test_results_without_runs(call, tmp_path):
    append_result(tmp_path / "results.jsonl", training_result())
    code, out, err = call(tmp_path)
    assert (code, out) == (5, "")
    assert err == f"convergence-figures: no training run is stored in {tmp_path}\n"
    assert names(tmp_path) == ["results.jsonl"]


def test_results_from_before_runs_were_stored(call, tmp_path):
    stream = tmp_path / "results.jsonl"
    stream.write_text('{"id": "R.L5.1", "verdict": "holds"}\n' * 3)
    code, _, err = call(tmp_path)
    assert code == 4
    assert "3 lines, the first one line 1: from before training runs were stored. Judge these claims again." in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-k", "nothing"), 5, "`-k` selects none of the 2 claims with training runs"),
        (("--fromat", "pdf"), 4, "unrecognized arguments: --fromat pdf; did you mean --format?"),
        (("-k", "("), 4, "`-k` cannot be read: it ends too early"),
        (("--format", "gif"), 4, "must be among pdf, png, svg, separated by commas. Got 'gif'"),
        (("--format", ","), 4, "must be among pdf, png, svg"),
        (("--figure", "1"), 4, "unrecognized arguments: --figure 1"),
    ],
)
def test_words_that_select_or_mean_nothing(call, results, words, code, said):
    got, _, err = call(results, *words)
    assert got == code
    assert said in err
    assert names(results) == ["results.jsonl"]


def test_a_folder_that_is_not_there(call, tmp_path):
    code, _, err = call(tmp_path / "nowhere")
    assert code == 4
    assert "nowhere cannot be read: No such file or directory." in err


def test_figures_that_cannot_be_written(call, results, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = call(results, "--out", tmp_path / "file")
    assert code == 4
    assert "file" in err


def test_matplotlib_that_is_missing_is_said_before_anything_is_made(call, results, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = call(results)
    assert code == 4
    assert '"matplotlib' in err
    assert names(results) == ["results.jsonl"]


def test_hostile_words_reach_no_terminal(call, tmp_path):
    append_result(tmp_path / "results.jsonl", training_result(SMALL, id="\x1b[31m/../$x", title="\x1b]0;t\x07"))
    bad = json.loads((tmp_path / "results.jsonl").read_text())
    bad["runs"][0]["status"] = ["\x1b[31m"]
    bad["runs"][0]["\x1b[1m"] = 1
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write(json.dumps(bad) + "\n")
    code, out, err = call(tmp_path, "--format", "svg")
    assert code == 4
    assert "\x1b" not in out + err
    assert len(names(tmp_path / "figures")) == 1


def test_help_explains_the_exit_codes(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "no training run stored, or none selected" in out
    code, out, _ = call("--version")
    assert code == 0
    assert out.startswith("ntk_deq ")


def test_nothing_is_drawn_through_a_link(call, results, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious", encoding="utf-8")
    (results / "figures").symlink_to(elsewhere)
    code, _, err = call(results, "-k", "mutant")
    assert code == 4
    assert "it is a link, and nothing is written through one" in err
    assert names(elsewhere) == ["precious"]
    (results / "figures").unlink()
    (results / "figures").mkdir()
    (results / "figures" / "R.T4.4.m1-tiny-3-run.pdf").symlink_to(elsewhere / "precious")
    assert call(results, "-k", "mutant", "--format", "pdf")[0] == 0
    assert (elsewhere / "precious").read_text(encoding="utf-8") == "precious"
    assert not (results / "figures" / "R.T4.4.m1-tiny-3-run.pdf").is_symlink()


def test_no_torch_is_loaded(results):
    script = (
        "import sys\nfrom ntk_deq.cli.figures import main\n"
        f"assert main([{str(results)!r}, '-k', 'mutant']) == 0\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100, capture_output=True)


def changed(results, change):
    """Change the first stored run of a file of results."""
    path = results / "results.jsonl"
    lines = path.read_text("utf-8").splitlines()
    entry = json.loads(lines[0])
    change(entry["runs"][0])
    path.write_text("\n".join([json.dumps(entry), *lines[1:]]) + "\n", encoding="utf-8")


def rewritten(run, odd, where):
    """Put a number in the place of others in a stored run."""
    if where in ("low", "high", "value"):
        run["predicted"][where] = run["measured"][where] = odd
    elif where == "displacement":
        run[where] = {name: [0, *[odd] * (len(values) - 1)] for name, values in run[where].items()}
    elif where == "curves":
        for curve in run[where]:
            curve.update({name: [odd] * len(curve[name]) for name in ("low", "high", "bound")})
    else:
        run[where] = [run[where][0], *[odd] * (len(run[where]) - 1)]


PLACES = ["loss", "path_length", "displacement", "curves", "low", "value", "high", "instantaneous"]
ALONE = [*zip((5e-324, 1e300, "inf", "-inf"), PLACES[:1] + PLACES[3:6], strict=True)]


@pytest.mark.parametrize(
    ("odd", "places"),
    [
        *((odd, PLACES) for odd in (5e-324, 1.7e308, "nan")),
        *(pytest.param(odd, PLACES, marks=pytest.mark.long) for odd in (1e-300, 1e300, "inf", -1)),
        *(pytest.param(odd, [place], marks=pytest.mark.long) for odd, place in ALONE),
    ],
)
def test_numbers_at_the_ends_of_floats_are_drawn(call, results, odd, places):
    changed(results, lambda run: [rewritten(run, odd, place) for place in places])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = call(results, "--format", "svg", "-k", "R.T4.4 and not mutant")
    assert (code, err) == (0, ""), out


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("at", [0, 1e308, "inf", 5], r"`runs\[0\].at\[2\]` must be a finite step or time >= 0"),
        ("at", [0, 10, 10, 20], r"`runs\[0\].at\[2\]` must be a finite step or time .*, later than the one before"),
        ("at", [-1, 0, 1, 2], r"`runs\[0\].at\[0\]` must be"),
        ("at", ["nan", 0, 1, 2], r"`runs\[0\].at\[0\]` must be"),
        ("step", "inf", r"`runs\[0\].step` must be a number > 0"),
        ("step", 0, r"`runs\[0\].step` must be a number > 0"),
    ],
)
def test_steps_that_no_run_has(call, results, key, value, said):
    changed(results, lambda run: run.update({key: value}))
    code, _, err = call(results, "--format", "svg", "-k", "not mutant")
    assert code == 4
    assert re.search(said, err)


@pytest.mark.parametrize(
    "at",
    [
        [0, 5e-324, 1, 2],
        *(pytest.param(at, marks=pytest.mark.long) for at in ([0, 1, 2, 1e308], [0, 1e-200, 1e-100, 1e150])),
    ],
)
def test_steps_that_no_axis_holds_are_left_out(call, results, at):
    changed(
        results, lambda run: run.update(at=[*at[:-1], *(at[-1] * (1 + i / 100) for i in range(len(run["at"]) - 3))])
    )
    code, out, err = call(results, "--format", "svg")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "2 runs drawn; 1 run at steps or times that no axis holds left out"


def test_a_curve_of_an_unknown_sense(call, results):
    changed(results, lambda run: run["curves"][0].update(sense=""))
    code, _, err = call(results, "--format", "svg")
    assert code == 4
    assert "`runs[0].curves[0].sense` must be `<=` or `>=`. Got ''" in err
