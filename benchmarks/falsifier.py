"""How often the runner errs on statements known to be true or false, how long it takes, how small what it shows is.

    python -m benchmarks.falsifier true 0..19
    python -m benchmarks.falsifier false 0..19 --rows rows.jsonl
    python -m benchmarks.falsifier part-r 0..4 --search 0
    python -m benchmarks.falsifier summary --rows rows.jsonl

The lists are `true` (tests/suite/true.yaml: true statements), `false` (tests/suite/false.yaml: false ones) and `part-r`
(the refuted claims R.S4M, R.S4P and R.L3.2, and every mutant of checks/mutants/implicit_relu.yaml and
linear_implicit.yaml). Each claim is judged once for each seed, by `ntk_deq.verify.runner.judge` with its default
options, without a store; `--instances`, `--search` and `--boxes` make it cheaper. With `--rows FILE` a line of JSON for
each judgement is added to the file, so that a long measurement can be made in pieces; `summary` adds them up.

It prints a table with a row for each list: judgements, verdicts, median and worst seconds of processor time on one
thread, and the largest size (N, m or another letter) of a counterexample that was shown; then the slowest claims, the
largest counterexamples, and every judgement that did not come out as the list says. The targets are: no true statement
refuted, no false one left, no size above 3. The exit code is the number of targets missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.runner import Options, judge

ROOT = Path(__file__).parents[1]
LARGEST = 3
SHOWN = 6  # claims in the lists of the slowest and of the largest
LISTS = ("true", "false", "part-r")
PART_R = ("R.S4M", "R.S4P", "R.L3.2")

Row = dict[str, Any]


def claims_of(name: str) -> list[Claim]:
    """Return the claims of one of the lists."""
    if name != "part-r":
        files = [ROOT / "tests" / "suite" / f"{name}.yaml"]
        found = [claim for file in files for claim in load_suite(file).claims]
    else:
        stated = load_suite(ROOT / "checks" / "implicit_relu.yaml").claims
        found = [claim for claim in stated if claim.id in PART_R]
        for mutants in ("implicit_relu", "linear_implicit"):
            found += load_suite(ROOT / "checks" / "mutants" / f"{mutants}.yaml").claims
    return [claim for claim in found if isinstance(claim, Claim)]


def measured(name: str, seeds: Sequence[int], options: Options) -> Iterator[Row]:
    """Judge every claim of a list for every seed; yield a row for each."""
    claims = claims_of(name)
    for seed in seeds:
        for claim in claims:
            started = process_time()
            result = judge(claim, replace(options, seed=seed))
            shown = result.counterexample
            yield {
                "list": name,
                "id": claim.id,
                "seed": seed,
                "verdict": result.verdict.value,
                "evidence": result.evidence.value,
                "seconds": process_time() - started,
                "instances": result.instances,
                "searched": result.searched,
                "sizes": None if shown is None else shown.sizes,
                "reason": result.reason,
            }


def largest(row: Row) -> int:
    """Return the largest size of the counterexample of a row; 0 where there is none."""
    return max((row["sizes"] or {}).values(), default=0)


def wrong(row: Row) -> bool:
    """Whether a judgement contradicts the list that its claim is in."""
    return (row["verdict"] == "refuted") == (row["list"] == "true") or row["verdict"] == "error"


def print_summary(rows: Sequence[Row]) -> int:
    """Print what the rows come to; return how many targets were missed."""
    table = []
    for name in LISTS:
        part = [row for row in rows if row["list"] == name]
        if part:
            counts = Counter(row["verdict"] for row in part)
            times = [row["seconds"] for row in part]
            verdicts = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
            seeds = len({row["seed"] for row in part})
            size = str(max(map(largest, part)) or "-")
            table.append(
                [name, str(seeds), str(len(part)), verdicts, f"{median(times):.2f} s", f"{max(times):.1f} s", size]
            )
    print_table(["list", "seeds", "judgements", "verdicts", "median", "worst", "largest size"], table)
    by_claim: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_claim[row["id"]].append(row)
    print("\nthe slowest claims")
    slow = sorted(by_claim.items(), key=lambda item: -median(row["seconds"] for row in item[1]))[:SHOWN]
    print_table(
        ["claim", "median", "worst"],
        [[i, f"{median(r['seconds'] for r in p):.2f} s", f"{max(r['seconds'] for r in p):.2f} s"] for i, p in slow],
    )
    shown = sorted((row for row in rows if row["sizes"]), key=largest, reverse=True)[:SHOWN]
    if shown:
        print("\nthe largest counterexamples")
    for row in shown:
        print(f"{row['id']}  seed {row['seed']}  {row['sizes']}")
    return _print_targets(rows)


def _print_targets(rows: Sequence[Row]) -> int:
    left = [row for row in rows if row["verdict"] in ("undecided", "vacuous") or wrong(row)]
    print(f"\n{len(left)} judgements are not what the list says" + ":" * bool(left))
    for (name, kind), count in Counter((row["id"], row["verdict"]) for row in left).most_common():
        first = next(row for row in left if (row["id"], row["verdict"]) == (name, kind))
        print(f"{name}  {kind} for {count} seeds; seed {first['seed']}: {first['reason'][:200]}")
    refuted = [row for row in rows if row["list"] == "true" and wrong(row)]
    survived = [row for row in rows if row["list"] != "true" and wrong(row)]
    print()
    return (
        verdict(f"no true statement refuted (refuted or failed: {len(refuted)})", not refuted)
        + verdict(f"every false statement refuted (not refuted: {len(survived)})", not survived)
        + verdict(f"sizes of counterexamples at most {LARGEST}", max(map(largest, rows), default=0) <= LARGEST)
    )


def seed_range(text: str) -> list[int]:
    """Return the seeds of `3` or `0..19`."""
    first, _, last = text.partition("..")
    return list(range(int(first), int(last or first) + 1))


def main(words: Sequence[str]) -> int:
    """Judge what is asked for and print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m benchmarks.falsifier"
    )
    parser.add_argument("list", choices=(*LISTS, "summary"), help="what to judge, or `summary` of what is in the rows")
    parser.add_argument("seeds", nargs="?", type=seed_range, default=[0], metavar="A..B", help="seeds (default 0)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="add a line for each judgement to FILE, or read it")
    usual = Options()
    parser.add_argument("--instances", type=int, default=usual.instances, help="instances of the ladder")
    parser.add_argument("--search", type=int, default=usual.search, help="evaluations of the search")
    parser.add_argument("--boxes", type=int, default=usual.boxes, help="boxes that a proof may look at")
    arguments = parser.parse_args(words)
    if arguments.list == "summary":
        if arguments.rows is None:
            parser.error("`summary` needs --rows FILE")
        return print_summary([json.loads(line) for line in arguments.rows.read_text().splitlines()])
    torch.set_num_threads(1)
    print_machine()
    options = Options(instances=arguments.instances, search=arguments.search, boxes=arguments.boxes)
    rows = []
    for row in measured(arguments.list, arguments.seeds, options):
        rows.append(row)
        if arguments.rows is not None:
            with arguments.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return print_summary(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
