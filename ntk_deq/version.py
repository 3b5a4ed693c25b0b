"""The version of the package, and the versions that a verdict may depend on."""

from __future__ import annotations

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
    return found | {name: metadata.version(name) for name in ("torch", "numpy", "python-flint", "sympy")}
