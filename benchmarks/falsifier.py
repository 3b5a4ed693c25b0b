"""How often the runner errs on statements known to be true or false, how long it takes, how small what it shows is.

    python -m benchmarks.falsifier true 0..19
    python -m benchmarks.falsifier false 0..19 --rows rows.jsonl
    python -m benchmarks.falsifier part-r 0..4 --search 0
    python -m benchmarks.falsifier outside-false 0..4 --draws
    python -m benchmarks.falsifier FILE.yaml 0..4
    python -m benchmarks.falsifier summary --rows rows.jsonl

The lists are `true` (tests/suite/true.yaml: true statements), `false` (tests/suite/false.yaml: false ones),
`handed-true`, `handed-false`, `outside-true` and `outside-false` (the files of those names there: written by people who
had not seen the search) and `part-r` (the refuted claims R.S4M, R.S4P and R.L3.2, and every mutant of
checks/mutants/implicit_relu.yaml and linear_implicit.yaml). Of a claim file of one's own, claims that expect `refuted`
count as false, all others as true. Each claim is judged once for each seed, by `ntk_deq.verify.runner.judge` with its
default options, without a store; `--instances`, `--search` and `--boxes` make it cheaper. With `--rows FILE` a line of
JSON for each judgement is added to the file, so that a long measurement can be made in pieces; `summary` adds them up.

With `--draws` each claim without a training run is also tried by plain random draws, for as much processor time as the
judgement took: Gaussian tensors with scalars from their domains, and entries that are uniform, whole numbers, zero or
far apart in scale, as property-based testing draws them. The target then is that nothing they break came out otherwise
by default. A draw breaks a claim where all hypotheses hold in floating point and a conclusion fails by 1e-9.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
from torch import Tensor

from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.falsify.families import random_family
from ntk_deq.falsify.scalars import random_entries
from ntk_deq.language.domain import Domain, DomainKind
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.scoring import ClaimScorer

ROOT = Path(__file__).parents[1]
LARGEST = 3
SHOWN = 6  # claims in the lists of the slowest and of the largest
SUITES = ("true", "false", "handed-true", "handed-false", "outside-true", "outside-false")
LISTS = (*SUITES, "part-r")
TOGETHER = 256  # draws that are scored at once
CLEAR = 1e-9  # by which a conclusion must fail
PART_R = ("R.S4M", "R.S4P", "R.L3.2")

Row = dict[str, Any]


def claims_of(name: str) -> list[Claim]:
    """Return the claims of one of the lists, or of a claim file."""
    if name != "part-r":
        file = ROOT / "tests" / "suite" / f"{name.replace('-', '_')}.yaml" if name in SUITES else Path(name)
        found = list(load_suite(file).claims)
    else:
        stated = load_suite(ROOT / "checks" / "implicit_relu.yaml").claims
        found = [claim for claim in stated if claim.id in PART_R]
        for mutants in ("implicit_relu", "linear_implicit"):
            found += load_suite(ROOT / "checks" / "mutants" / f"{mutants}.yaml").claims
    return [claim for claim in found if isinstance(claim, Claim)]


def measured(name: str, seeds: Sequence[int], options: Options, *, draws: bool = False) -> Iterator[Row]:
    """Judge every claim of a list for every seed; yield a row for each, with what plain draws find in that time."""
    claims = claims_of(name)
    for seed in seeds:
        for claim in claims:
            started = process_time()
            result = judge(claim, replace(options, seed=seed))
            shown = result.counterexample
            seconds = process_time() - started
            ways = DRAWS if draws and not claim.trains else {}
            yield {
                "list": name,
                "false": name == "part-r" or claim.expect is Verdict.REFUTED,
                "id": claim.id,
                "seed": seed,
                "verdict": result.verdict.value,
                "evidence": result.evidence.value,
                "seconds": seconds,
                "broken by": [way for way, draw in ways.items() if drawn(claim, seed, seconds, draw)],
                "instances": result.instances,
                "searched": result.searched,
                "sizes": None if shown is None else shown.sizes,
                "reason": result.reason,
            }


def gaussian(domain: Domain, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw many values of a variable as anybody would: Gaussian entries, brought into the domain."""
    value = torch.randn((TOGETHER, *shape), generator=generator, dtype=torch.float64)
    match domain.kind if shape else None:
        case DomainKind.REAL:
            return value
        case DomainKind.SYMMETRIC:
            return (value + value.mT) / 2
        case DomainKind.SKEW:
            return (value - value.mT) / 2
        case DomainKind.DIAGONAL:
            return torch.diag_embed(value.diagonal(dim1=-2, dim2=-1))
        case None:
            return random_entries(domain, (TOGETHER,), generator)
    return torch.stack([random_family(domain, shape, generator)[1] for _ in range(TOGETHER)])


def property_based(domain: Domain, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw many values as property-based testing does: uniform, whole, or zero entries, and entries of far scales."""
    kind = int(torch.randint(4, (), generator=generator))
    if kind == 0 or domain.kind is not DomainKind.REAL:
        return gaussian(domain, shape, generator)
    many = (TOGETHER, *shape)
    uniform = 20 * torch.rand(many, generator=generator, dtype=torch.float64) - 10
    if kind == 1:
        return uniform.round() * (torch.rand(many, generator=generator) < 0.7)
    return uniform if kind == 2 else uniform * 10.0 ** torch.randint(-6, 4, many, generator=generator)


DRAWS: dict[str, Callable[[Domain, tuple[int, ...], torch.Generator], Tensor]] = {
    "plain draws": gaussian,
    "property-based draws": property_based,
}


def drawn(
    claim: Claim, seed: int, seconds: float, draw: Callable[[Domain, tuple[int, ...], torch.Generator], Tensor]
) -> bool:
    """Whether random draws break a claim within some seconds of processor time."""
    generator = torch.Generator().manual_seed(seed)
    end = process_time() + seconds
    universal = [setting for setting in claim.settings if setting.universal]
    scorers = [ClaimScorer(claim, setting) for setting in universal]
    while universal and process_time() < end:
        for setting, scorer in zip(universal, scorers, strict=True):
            sizes = {
                name: size.low + int(torch.randint(size.high - size.low + 1, (), generator=generator))
                for name, size in setting.sizes.items()
            }
            free = {**setting.free, **claim.given}
            values = {name: draw(v.domain, shape_of(v.type, sizes, name=name), generator) for name, v in free.items()}
            base = Instance(setting.name, "draws", sizes, {name: many[0] for name, many in values.items()}, 0)
            moving = {name: many for name, many in values.items() if name in scorer.uses}
            with torch.no_grad():
                scores = scorer(base, moving)
            if bool(((scores.feasible >= 0) & (scores.margin < -CLEAR)).any()):
                return True
    return False


def largest(row: Row) -> int:
    """Return the largest size of the counterexample of a row; 0 where there is none."""
    return max((row["sizes"] or {}).values(), default=0)


def wrong(row: Row) -> bool:
    """Whether a judgement contradicts the list that its claim is in."""
    return (row["verdict"] == "refuted") != row["false"] or row["verdict"] == "error"


def print_summary(rows: Sequence[Row]) -> int:
    """Print what the rows come to; return how many targets were missed."""
    table = []
    for name in dict.fromkeys(row["list"] for row in rows):
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
    refuted = [row for row in rows if not row["false"] and wrong(row)]
    survived = [row for row in rows if row["false"] and wrong(row)]
    small = [row for row in rows if row["list"] in ("true", "false", "part-r")]  # others need larger ones
    for way in DRAWS:
        found = sum(way in row["broken by"] for row in rows)
        missed = [row["id"] for row in rows if way in row["broken by"] and wrong(row)]
        if found:
            print(f"\n{way} broke {found} of {len(rows)}; of these came out otherwise by default: {missed or 'none'}")
    print()
    return (
        verdict("nothing that plain draws break survives", not any(r["broken by"] and wrong(r) for r in survived))
        + verdict(f"no true statement refuted (refuted or failed: {len(refuted)})", not refuted)
        + verdict(f"every false statement refuted (not refuted: {len(survived)})", not survived)
        + verdict(f"sizes of counterexamples at most {LARGEST}", max(map(largest, small), default=0) <= LARGEST)
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
    parser.add_argument(
        "list", metavar="LIST", help=f"what to judge: {', '.join(LISTS)} or a claim file; or `summary` of the rows"
    )
    parser.add_argument("seeds", nargs="?", type=seed_range, default=[0], metavar="A..B", help="seeds (default 0)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="add a line for each judgement to FILE, or read it")
    usual = Options()
    parser.add_argument("--instances", type=int, default=usual.instances, help="instances of the ladder")
    parser.add_argument("--search", type=int, default=usual.search, help="how long to search")
    parser.add_argument("--draws", action="store_true", help="try random draws for the same time, too")
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
    for row in measured(arguments.list, arguments.seeds, options, draws=arguments.draws):
        rows.append(row)
        if arguments.rows is not None:
            with arguments.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return print_summary(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
