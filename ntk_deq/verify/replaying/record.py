"""What an instance file says: a claim, one instance of it, and how that was judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ntk_deq.claims.claim import Claim
from ntk_deq.falsify.instance import Instance
from ntk_deq.verify.results import Margin

FORMAT = 1
"""Number of the present format."""

MAX_INLINE = 256
"""Entries of one variable up to which it is written into the file; a larger one goes into an archive beside it."""


class RecordKind(StrEnum):
    """What an instance is kept for."""

    COUNTEREXAMPLE = "counterexample"
    NEAR_MISS = "near-miss"


@dataclass(frozen=True)
class Record:
    """An instance file, read.

    Attributes:
        kind: What the instance is kept for.
        claim: The claim as it was when the instance was found.
        instance: The instance.
        conclusion: Name of the conclusion that broke, or came closest to equality.
        lhs, rhs, relation, step: Its two sides as text, the sign between them, the step indices.
        margin: The ball of rhs - lhs.
        seed: Seed of the run.
        dtype: Type to which values were rounded when the instance was judged.
        precision: Bits of that judgement; None: floats of type `dtype`.
        device: Device of that judgement, in words.
        versions: Versions of what judged it.
        fingerprint: Hash of what the claim stated.
        found_in: Where the claim stood.
    """

    kind: RecordKind
    claim: Claim
    instance: Instance
    conclusion: str
    lhs: str
    rhs: str
    relation: str
    margin: Margin
    seed: int
    dtype: str
    precision: int | None
    fingerprint: str
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=dict)
    step: dict[str, float] = field(default_factory=dict)
    found_in: str = ""
