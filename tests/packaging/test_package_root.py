"""What `import ntk_deq` offers, and that it loads nothing until it is asked for."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import ntk_deq


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_the_root_loads_nothing():
    code = "import sys, ntk_deq; print(*sorted(name for name in sys.modules if name.startswith(('ntk_deq', 'torch'))))"
    assert printed(code) == ["ntk_deq", "ntk_deq.package"]


def test_subpackages_are_there_without_an_import_of_their_own():
    code = (
        "import sys, ntk_deq as nd\n"
        "nd.systems, nd.plots, nd.errors\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)\n"
        "print(nd.systems.ImplicitReLU is nd.ImplicitReLU, nd.plots.convergence.__name__)"
    )
    assert printed(code) == ["False", "False", "True", "convergence"]


PLUMBING = {"cli", "package"}  # of no use to a notebook


def test_every_subpackage_but_the_plumbing_is_offered():
    found = {module.name for module in pkgutil.iter_modules(ntk_deq.__path__)}
    offered = set(dir(ntk_deq)) - set(ntk_deq.__all__)
    assert offered == found - PLUMBING
    for name in offered:
        assert getattr(ntk_deq, name).__name__ == f"ntk_deq.{name}"


def test_every_name_is_there():
    for name in ntk_deq.__all__:
        assert getattr(ntk_deq, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'model'"):
        ntk_deq.model  # noqa: B018
