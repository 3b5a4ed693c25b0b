"""The commands `verify-claims` and `convergence-figures`; the only package that prints.

    arguments.py    what may be said; select.py: which claims; main.py: which command
    session.py      `run`: judged claim by claim into a results folder
    mutate.py, replay.py, figures.py    the other commands; process.py: signals, streams that cannot be written

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
