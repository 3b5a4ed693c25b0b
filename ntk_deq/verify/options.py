"""How claims are judged: one record of settings, each checked when it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.errors import ArgumentError, check_instance, is_number
from ntk_deq.verify.formulas import Judging
from ntk_deq.verify.refine import DEFAULT_BITS, FLOAT_BITS

LIVES = 2
"""Processes that may die of one claim."""

USUAL = 200
"""Instances of a domain setting where nobody says how many."""

MOST_BITS = 4096
"""Precision above which judging an instance again would take minutes."""

_DTYPES = (torch.float64, torch.float32)
_WHOLE = {"seed": 0, "search": 0, "boxes": 0, "instances": 1, "usual": 1}  # the least that each may be
_OPTIONAL = ("search", "instances")
_SWITCHES = ("stop_early", "findings", "satisfy", "shrink")


@dataclass(frozen=True)
class Options:
    """How to judge.

    Attributes:
        seed: Seed of every draw.
        instances: Instances for each domain setting of a claim (a claim's own `instances` wins); None: `usual` ones, of
            which a claim on training gets `TRAINED`, and a quarter of these where data are drawn.
        device: Where instances are evaluated: cpu, cuda or cuda:N.
        dtype: In which precision: torch.float64 or torch.float32.
        time_limit: Seconds for each claim, of processor time of the thread that judges, or None; a claim that runs over
            it is undecided. It is looked at between operations: a single one, such as a large singular value
            decomposition, can outlast it, unless the claim is judged in a worker (`judge_in_workers`).
        stop_early: Stop at the first verdict against expectation.
        precision: Bits with which undecided small instances are judged again, 53 to 4096; 53: none are.
        findings: Whether to look, where a claim holds, for hypotheses that do not matter and for bounds with room.
        search: What the adversarial search may cost in each domain setting, a tenth in others, in instances scored
            alone; many small ones scored together are cheap. 0: no search; None: `default_budget`.
        satisfy: Whether to search for an instance that meets the hypotheses where none tried does.
        smallest: Size letters and scalars whose smallest value that meets the hypotheses is looked for.
        shrink: Whether to look for the plainest counterexample; if not, the first one is shown as it was found.
        boxes: Boxes that the proof of a claim about real numbers may look at; 0: no proof is tried.
        store: Folder of counterexamples and near misses of earlier runs, tried first; None: none.
        out: Folder that gets a file to replay for each counterexample; None: none is written.
        usual: Instances where neither the claim nor `instances` says how many.

    Raises:
        ArgumentError: A value is none that is listed above.

    Example:
        >>> Options(precision=1)
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `precision` of Options must be an integer from 53 to 4096. Got 1.
    """

    seed: int = 0
    instances: int | None = None
    device: str = "cpu"
    dtype: torch.dtype = torch.float64
    time_limit: float | None = None
    stop_early: bool = False
    precision: int = DEFAULT_BITS
    findings: bool = False
    search: int | None = None
    satisfy: bool = False
    smallest: tuple[str, ...] = ()
    shrink: bool = True
    boxes: int = 1000
    store: str | None = None
    out: str | None = None
    usual: int = USUAL

    def __post_init__(self) -> None:
        """Check every value."""
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if not (_is_whole(value) and value >= least) and not (value is None and name in _OPTIONAL):
                self._refuse(name, f"an integer >= {least}{', or None' * (name in _OPTIONAL)}")
        if not _is_whole(self.precision) or not FLOAT_BITS <= self.precision <= MOST_BITS:
            self._refuse("precision", f"an integer from {FLOAT_BITS} to {MOST_BITS}")
        limit = self.time_limit
        if limit is not None and not (is_number(limit) and 0 < limit < math.inf):
            self._refuse("time_limit", "a number of seconds > 0, or None")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                self._refuse(name, "True or False")
        if not isinstance(self.device, str) or re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", self.device) is None:
            self._refuse("device", "'cpu', 'cuda' or 'cuda:N'")
        if self.dtype not in _DTYPES:
            self._refuse("dtype", " or ".join(map(str, _DTYPES)))
        if not isinstance(self.smallest, tuple) or not all(isinstance(n, str) and n for n in self.smallest):
            self._refuse("smallest", "a tuple of names")
        for name in ("store", "out"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                self._refuse(name, "the name of a folder, or None")

    def judging(self, deadline: float | None = None) -> Judging:
        """Return what whatever judges instances takes of these options, as keywords."""
        return {"device": torch.device(self.device), "dtype": self.dtype, "deadline": deadline}

    def _refuse(self, name: str, allowed: str) -> None:
        raise ArgumentError(f"`{name}` of Options must be {allowed}. Got {getattr(self, name)!r}.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_claims(claims: object, options: object, where: str) -> None:
    """Refuse what are no claims, or no options.

    Args:
        claims: Those of a suite.
        options: How they are judged.
        where: Whose arguments they are.

    Raises:
        ArgumentError: The message says which.
    """
    check_instance(options, Options, "options", where, "an `Options`")
    check_instance(claims, Sequence, "claims", where, "a sequence of claims, such as `load_suite(path).claims`")
    for claim in claims:  # type: ignore[attr-defined]
        check_instance(claim, Claim | IllFormed, "claims", where, "claims, such as those of `load_suite(path)`")
