"""Show goals by exact arguments: each in all of its cases."""

from __future__ import annotations

import time

from ntk_deq.verify.proof.branch import Goal
from ntk_deq.verify.proof.cases import Case, cases
from ntk_deq.verify.proof.exact import Exact
from ntk_deq.verify.proof.formulas import Formula
from ntk_deq.verify.proof.knowledge import TOTAL_WORK
from ntk_deq.verify.proof.problem import Problem, Statement, Variable
from ntk_deq.verify.proof.signomial import TooLargeError

_Premises = tuple[tuple[Variable, ...], tuple[Formula, ...], tuple[Statement, ...]]


class SymbolicProver:
    """Shows the goals of one problem; what holds in a case is worked out once for all of them.

    Args:
        problem: The claim.
        deadline: When to stop, on the clock of `time.thread_time`.
    """

    def __init__(self, problem: Problem, *, deadline: float | None = None) -> None:
        self._problem = problem
        self._deadline = deadline
        self._known: dict[_Premises, Exact] = {}

    def shows(self, goal: Goal) -> set[str] | None:
        """Return the names of the arguments that show a goal wherever the hypotheses hold, or None where none does."""
        split = cases(self._problem, goal.formula)
        used: set[str] = set()
        for case in split or ():
            if self._deadline is not None and time.thread_time() > self._deadline:
                return None
            found = self._in_case(case)
            if found is None:
                return None
            used |= found
        return None if split is None else used

    def _in_case(self, case: Case) -> set[str] | None:
        try:
            known = self._premises(case)
            known.start(TOTAL_WORK)
            return set(known.used) if known.shows(case.goal) else None
        except TooLargeError:
            return None

    def _premises(self, case: Case) -> Exact:
        """Return what is known in a case."""
        key = (case.variables, case.facts, case.hypotheses)
        if key not in self._known:
            known = Exact(self._problem.terms, case.variables)
            for fact in case.facts:
                known.learn(fact)
            _establish(known, case)
            self._known[key] = known
        return self._known[key]


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
