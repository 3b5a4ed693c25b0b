"""The version of the package.

The versions that a verdict may depend on.
"""

from __future__ import annotations

import platform
from importlib import metadata

import torch

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Return the version of each part by name.

    Example:
        >>> "torch" in versions()
        True
    """
    found = {"ntk_deq": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    return found | {name: metadata.version(name) for name in ("numpy", "python-flint", "sympy")}
