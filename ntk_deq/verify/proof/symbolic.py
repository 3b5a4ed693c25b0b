"""Show goals by exact arguments: each in all of its cases."""

from __future__ import annotations

import time

from ntk_deq.verify.proof.branch import Goal
from ntk_deq.verify.proof.cases import Case, cases
from ntk_deq.verify.proof.exact import Exact
from ntk_deq.verify.proof.problem import Problem
from ntk_deq.verify.proof.signomial import TooLargeError


def shows(problem: Problem, goal: Goal, *, deadline: float | None = None) -> set[str] | None:
    """Return the names of the arguments that show a goal, or None where none is found.

    Args:
        problem: The claim.
        goal: What is to be shown wherever the hypotheses hold.
        deadline: When to stop, on the clock of `time.perf_counter`.
    """
    split = cases(problem, goal.formula)
    used: set[str] = set()
    for case in split or ():
        if deadline is not None and time.perf_counter() > deadline:
            return None
        found = _shows_case(problem, case)
        if found is None:
            return None
        used |= found
    return None if split is None else used


def _shows_case(problem: Problem, case: Case) -> set[str] | None:
    try:
        known = Exact(problem.terms, case.variables)
        for fact in case.facts:
            known.learn(fact)
        _establish(known, case)
        return known.used if known.shows(case.goal) else None
    except TooLargeError:
        return None


def _establish(known: Exact, case: Case) -> None:
    """Learn every hypothesis whose parts are known to be defined, and so on while there are new ones."""
    waiting = list(case.hypotheses)
    while waiting:
        ready = [h for h in waiting if known.shows(h.defined)]
        if not ready:
            return
        for hypothesis in ready:
            known.learn(hypothesis.formula)
        waiting = [h for h in waiting if h not in ready]
