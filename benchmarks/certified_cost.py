"""Certified verdicts on the static claims of part R at N = 64, m = 256 against plain evaluations of the formulas."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

from benchmarks.machine import medians, print_machine, print_table, verdict
from benchmarks.part_r_plain import PLAIN, Plain
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.falsify import instance_at
from ntk_deq.verify.judge import judge_instance
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge

TARGET = 4
ROUNDS = 3
# Below this many seconds of a plain evaluation, what is timed is the Python of an interpreter of formulas.
COUNTS = 0.05
SUITE = Path(__file__).parent / "claims" / "part_r_large.yaml"


def timed(claim: Claim) -> tuple[list[str], tuple[float, float], bool]:
    """Return a row of the table, the times certified and plain, and whether the verdict is certified."""
    instance = instance_at(claim.settings[0], claim.given, 0, 0)
    evaluate = PLAIN[claim.id.removesuffix(".large")]
    result = judge(claim, Options())
    certified, plain = medians(
        [
            lambda: judge_instance(claim, instance, device=torch.device("cpu")),
            lambda: evaluate(Plain(instance.values)),
        ],
        ROUNDS,
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = [
        claim.id,
        str(result.verdict),
        str(result.evidence),
        f"{certified:.2f} s",
        f"{plain:.2f} s",
        f"{certified / plain:.1f}",
        f"{peak:.2f} GiB",
    ]
    return row, (certified, plain), result.evidence is Evidence.CERTIFIED


def main() -> int:
    """Print the table and return the number of missed targets."""
    torch.set_num_threads(1)
    print_machine()
    print(f"{SUITE.name}: N = 64, m = 256; median of {ROUNDS} alternating rounds; peak memory so far")
    claims = [claim for claim in load_suite(SUITE).claims if isinstance(claim, Claim)]
    rows, times, certified = zip(*(timed(claim) for claim in claims), strict=True)
    worst = max(first / second for first, second in times if second >= COUNTS)
    longest = max(first for first, second in times if second < COUNTS)
    print_table(["claim", "verdict", "evidence", "certified", "plain", "ratio", "memory"], rows)
    print(f"claims whose plain evaluation takes less than {COUNTS} s take at most {longest:.2f} s and are not counted")
    return verdict("every verdict is certified", all(certified)) + verdict(
        f"at most {TARGET} times the plain evaluation (largest ratio {worst:.1f})", worst <= TARGET
    )


if __name__ == "__main__":
    sys.exit(main())
