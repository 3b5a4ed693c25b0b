"""cli.

The exit codes of `verify-claims`; its `--help` explains them.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_INTERRUPTED = 2
EXIT_INTERNAL = 3
EXIT_USAGE = 4
EXIT_EMPTY = 5
EXIT_OPEN = 6
