"""The wheel carries what a user needs, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(target), str(ROOT)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "ntk_deq/py.typed",
        "ntk_deq/language/models.yaml",
        "ntk_deq/report/templates/report.html",
        "ntk_deq/suite/paper_claims.yaml",
        "ntk_deq/suite/checks/implicit_relu.yaml",
        "ntk_deq/suite/checks/mutants/implicit_relu.yaml",
    ):
        assert needed in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ntk_deq"}


def test_the_papers_suite_works_without_a_checkout(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import ntk_deq; assert ntk_deq.__file__.startswith(sys.argv[1])\n"
        "from ntk_deq.cli.main import main\n"
        "sys.exit(main(['run', '--papers', '--list']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "site")], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "R.L3.1" in done.stdout
