"""How a command becomes a process: its exit code, an interruption, a reader that goes away."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from ntk_deq.cli.exit_codes import EXIT_INTERRUPTED, EXIT_USAGE


def run_process(name: str, main: Callable[[Sequence[str]], int]) -> None:
    """Run a command on the words of this process and exit with its code.

    Args:
        name: The command's name.
        main: What takes the words after it and returns the exit code.
    """
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone, as `| head` does: nothing more can be said, at exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_USAGE
    sys.exit(code)
