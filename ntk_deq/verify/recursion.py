"""The twin of recursions: steps that a claim itself gives, computed with as many bits as keep them known."""

from __future__ import annotations

from typing import ClassVar

from ntk_deq.language.run import RECURSION, RunKind
from ntk_deq.verify.runs import RunTwin


class RecursionTwin(RunTwin):
    """The twin of `recursion`."""

    kind: ClassVar[RunKind] = RECURSION
