"""What a kind of run is to a judgement and to a search: the interface of its twin, and the twin of fixed-point runs.

The record of a kind (`ntk_deq.language.run`) says what is true of it; its twin, found in `ntk_deq.verify.twins`, does
what is done with it. A claim without a run has the plainest twin, for which there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import ClassVar

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome
from ntk_deq.falsify.search.archive import Scorer
from ntk_deq.language.declaration import Setting
from ntk_deq.language.run import FIXED_POINT, Run, RunKind
from ntk_deq.language.tree import Expr, Formula
from ntk_deq.verify.results import Start, TrainingRecord
from ntk_deq.verify.scoring import ClaimScorer


class NoRunError(NtkDeqError):
    """A run cannot begin: no equilibrium is found at the start, or the gradient is zero there."""


class Course:
    """The run of a claim on one instance, as the claim is judged along it; this one leaves all as it was judged.

    Attributes:
        only_starts: Whether there is no step or time after the start, for certain.
        leaves_open: Whether a conclusion that may have no value is open; else it is passed over.
    """

    only_starts: bool = False
    leaves_open: ClassVar[bool] = False

    def certain_end(self, outcome: Outcome, expr: Expr) -> Outcome:
        """Return the outcome of a statement on steps, unsure where it is not certain which steps there are."""
        return outcome

    def along(self, outcome: Outcome, name: str) -> Outcome:
        """Return the outcome of a conclusion, unsure where the run does not show all that it speaks of."""
        return outcome

    def refined(self, outcomes: Mapping[str, Outcome]) -> Course | None:
        """Return the run with more judged steps, or None where these would tell no more.

        Args:
            outcomes: What the conclusions came to at the steps judged so far.
        """
        return None

    def finished(
        self, conclusions: Mapping[str, Outcome]
    ) -> tuple[dict[str, Outcome], tuple[TrainingRecord, ...], Start | None]:
        """Return the outcomes in the end, what reports show of the run, and of its start."""
        return dict(conclusions), (), None


class RunTwin:
    """What is done with a kind of run; this one is of claims that have none.

    Attributes:
        kind: The record.
        aims: Whether constants that a claim chooses are also chosen for other aims than its own.
        soon: An index so soon after the start that a bound has fallen there as it falls at first; None: there is none.
        unwritten: Why a conclusion cannot be written out from an instance alone, or an empty text.
    """

    kind: ClassVar[RunKind | None] = None
    aims: ClassVar[bool] = False
    soon: ClassVar[Fraction | None] = None
    unwritten: ClassVar[str] = ""

    def prepared(self, claim: Claim) -> Claim:
        """Return the claim in the form in which it is judged."""
        return claim

    def waits(self, formula: Formula, claim: Claim) -> bool:
        """Whether a hypothesis can be judged only once the run is known."""
        return False

    def begin(self, claim: Claim, env: Environment) -> None:
        """Let names with the index 0 have a meaning before there is a run."""

    def start(self, claim: Claim, env: Environment, instance: Instance) -> Course:
        """Run on an instance and let names with an index have a meaning.

        Raises:
            OutsideClaimError: What the run needs of its start has no value there.
            NoRunError: The run cannot begin.
        """
        return Course()

    @property
    def scorer(self) -> Callable[..., Scorer]:
        """What scores instances of a claim and a setting for the search; it takes what `ClaimScorer` takes."""
        return ClaimScorer

    def brief(self, run: Run) -> Run:
        """Return a run that shows the beginning only."""
        return run

    def cost(self, claim: Claim, setting: Setting, sizes: Mapping[str, int]) -> float:
        """Return what a score costs, in gradients of a network of one unit: no clock is asked."""
        return 1.0


class FixedPointTwin(RunTwin):
    """The twin of `fixed-point`: formulas iterate the model's map by themselves, so that nothing else is left to do."""

    kind: ClassVar[RunKind] = FIXED_POINT
