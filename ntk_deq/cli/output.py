"""The console that everything is printed on."""

from __future__ import annotations

import os
import sys

from rich.console import Console


class Output(Console):
    """A console that falls silent when its reader goes away, as `| head` does, and lets the work go on.

    Rich's own ends the process with code 1, which here says that a verdict is against expectation.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing from now on, at exit neither."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
