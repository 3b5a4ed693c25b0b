"""Problems of a claim file on the terminal: where, what, the source line with the place underlined, a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ntk_deq.claims.claim import Problem
from ntk_deq.errors import shortened
from ntk_deq.report.carets import caret_lines
from ntk_deq.report.console import say

SHOWN = 50
"""Problems of a file that are printed: nobody mends more at once, and the first ones often cause the rest."""


def render_problem(console: Console, problem: Problem, *, indent: int = 0) -> None:
    """Print one problem.

    Args:
        console: Where.
        problem: What is wrong and where.
        indent: Columns to leave free on the left.
    """
    claim = [(f"{shortened(problem.claim)}: ", "cyan")] if problem.claim is not None else []
    place = shortened(f"{problem.position}: ")
    say(console, (place, "bold"), *claim, shortened(problem.message), indent=indent)
    if problem.source is not None and problem.span is not None:
        line, carets = caret_lines(problem.source, problem.span, width=max(console.width - indent - 5, 20))
        say(console, line, indent=indent + 4, wrap=False)
        say(console, (carets, "bold red"), indent=indent + 4, wrap=False)
    if problem.hint:
        say(console, (shortened(problem.hint), "green"), indent=indent + 4)


def render_problems(console: Console, problems: Sequence[Problem]) -> None:
    """Print the first problems, a blank line between two, and the number of all at the end."""
    for problem in problems[:SHOWN]:
        render_problem(console, problem)
        console.print()
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    left = f", of which the first {SHOWN} are shown" if len(problems) > SHOWN else ""
    say(console, (f"{count}{left}", "bold red"))
