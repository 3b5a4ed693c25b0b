"""Verdicts on the terminal: live progress, one line a claim, details where one is unexpected, a summary."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ntk_deq.claims.claim import Verdict
from ntk_deq.language.types import Margin
from ntk_deq.report import (
    EXIT_MEANINGS,
    LOOKS,
    count_verdicts,
    exit_style,
    expectation,
    little_support,
    remarks,
    replay_command,
    second_look,
    shown_margin,
    starts_words,
    terminal_lines,
    verdict_style,
    worst_margin,
)
from ntk_deq.report.check import render_problem
from ntk_deq.report.console import (
    Piece,
    margin_words,
    one_line,
    relative_margin,
    say,
    say_hanging,
    say_values,
    short_margin,
    short_number,
    short_seconds,
    showable,
)
from ntk_deq.verify.results import ClaimResult, RunInfo, Witness

_VERDICT_WIDTH = max(len(verdict) for verdict in Verdict)
_MARGIN_WIDTH, _RELATIVE_WIDTH, _MET_WIDTH, _TIME_WIDTH, _MARK_WIDTH = 14, 11, 9, 6, 10
# Sign, gaps and columns: what a line takes besides the id.
_REST = 2 + 1 + _VERDICT_WIDTH + 1 + 9 + _MARGIN_WIDTH + _RELATIVE_WIDTH + _MET_WIDTH + 1 + _TIME_WIDTH
# The title joins the line where at least this much is left for it.
_TITLE_ROOM = 24
_TRACE_LINES = 6
_DRAW_EVERY = 0.1  # seconds
_INDENT = 4


class TerminalReport:
    """Prints a run as it goes: plain lines, and on a terminal with colours a bar that shows the current claim.

    Args:
        console: Where to print.
        total: Claims to judge.
        id_width: Columns for the claim ids, best the longest id's length.
    """

    def __init__(self, console: Console, total: int, *, id_width: int = 14) -> None:
        self._console = console
        self._total = total
        self._finished = 0
        self._id_width = max(6, min(id_width, 40, console.width - _REST))
        self._live: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._planned: dict[str, int] = {}
        self._stages: set[str] = set()  # claims with which something else is done than judging planned instances
        self._begun: dict[str, int] = {}  # which claims were begun, and as which
        self._drawn = 0.0
        self._warned: set[str] = set()

    def __enter__(self) -> TerminalReport:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Say how many claims there are, and start the bar where there is a terminal to draw it on."""
        console = self._console
        count = "1 claim" if self._total == 1 else f"{self._total} claims"
        say(console, (f"judging {count}", "dim"))
        if console.width >= _REST + self._id_width:  # else the lines are broken, and nothing stands in columns
            left = f"  {'claim'.ljust(self._id_width)} {'verdict'.ljust(_VERDICT_WIDTH)} {'evidence'.ljust(9)}"
            numbers = f"{'margin'.rjust(_MARGIN_WIDTH)}{'relative'.rjust(_RELATIVE_WIDTH)}{'met'.rjust(_MET_WIDTH)}"
            say(console, (f"{left}{numbers} {'time'.rjust(_TIME_WIDTH)}", "dim"))
        if console.is_terminal and not console.no_color and not console.is_dumb_terminal:
            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False, style="bold"),
                BarColumn(bar_width=24 if console.width >= 100 else 12),
                TextColumn("{task.fields[stage]}", markup=False),
                TextColumn("{task.fields[place]}", markup=False, style="dim"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
                auto_refresh=False,  # by `tick`: a thread that draws would be in the way of making processes
            )
            self._live.start()

    def stop(self) -> None:
        """Take the bar away and give the terminal its cursor back; harmless where there is none."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._tasks.clear()

    def claim_started(self, claim_id: str, total_instances: int) -> None:
        """Show that a claim's turn has come.

        Args:
            claim_id: The claim's id.
            total_instances: Instances planned for it.
        """
        if self._live is None:
            return
        self.claim_judged(claim_id)  # where it is judged again
        description = showable(self._console, one_line(claim_id))[: self._id_width]
        self._begun.setdefault(claim_id, max(len(self._begun), self._finished) + 1)
        place = f"claim {self._begun[claim_id]} of {self._total}"
        self._planned[claim_id] = total = max(total_instances, 1)
        self._tasks[claim_id] = self._live.add_task(description, total=total, place=place, stage=f"0/{total}")

    def instance_done(self, claim_id: str, done: int) -> None:
        """Show that `done` instances of a claim are judged."""
        if self._live is not None and claim_id in self._tasks and claim_id not in self._stages:
            total = self._planned[claim_id]
            self._live.update(self._tasks[claim_id], completed=done, total=total, stage=f"{done}/{total}")
        self.tick()

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Show what is done with a claim where it is something else than judging the instances that were planned.

        How long that takes is not known, so the bar runs to and fro.
        """
        self._stages.discard(claim_id)
        if stage and self._live is not None and claim_id in self._tasks:
            self._stages.add(claim_id)
            self._live.update(self._tasks[claim_id], total=None, stage=stage)
        self.tick()

    def claim_judged(self, claim_id: str) -> None:
        """Take the bar of a claim away: its line comes in its turn."""
        if self._live is not None and claim_id in self._tasks:
            self._live.remove_task(self._tasks.pop(claim_id))
        self._stages.discard(claim_id)

    def tick(self) -> None:
        """Draw the bars anew, if it is time."""
        now = time.perf_counter()
        if self._live is not None and now - self._drawn >= _DRAW_EVERY:
            self._drawn = now
            self._live.refresh()

    def claim_finished(self, result: ClaimResult) -> None:
        """Print the line of a claim, with details where its verdict is unexpected."""
        self._finished += 1
        self.claim_judged(result.id)
        self._line(result)
        little = little_support(result)
        if little:
            say_hanging(self._console, [" " * _INDENT], [(one_line(little), "yellow")])
        several = remarks(result)
        if several:
            say_hanging(self._console, [" " * _INDENT], [(several, "dim")])
        for line in terminal_lines(result.runs):
            say(self._console, (line, "dim"), indent=_INDENT)
        starts = starts_words(result.starts)
        if starts is not None:
            say(self._console, (starts, "dim"), indent=_INDENT)
        if not result.as_expected:
            self._details(result)
        for record in result.conclusions:
            if record.proven:
                words = one_line(f"{record.name!r} by itself is {record.proven}")
                say_hanging(self._console, [" " * _INDENT, ("proved: ", "dim")], [(words, "dim")])
        for text in result.untested:
            say_hanging(self._console, [" " * _INDENT, ("not tested: ", "dim")], [(one_line(text), "dim")])
        for finding in result.findings:
            say_hanging(self._console, [" " * _INDENT, ("finding: ", "cyan")], [one_line(finding.text)])
        for text in result.warnings:
            if text not in self._warned:  # what holds for every claim, such as a full disk, is said once
                self._warned.add(text)
                say_hanging(self._console, [" " * _INDENT, ("warning: ", "dim")], [(one_line(text), "dim")])

    def summary(
        self, results: Sequence[ClaimResult], info: RunInfo, paths: Mapping[str, str | Path], exit_code: int
    ) -> None:
        """Print the counts, what was unexpected, where the files are and what the exit code means.

        Args:
            results: Every result of the run.
            info: The run.
            paths: Files written, by what they are.
            exit_code: What the process will exit with.
        """
        self.stop()
        console = self._console
        console.print()
        counts: list[Piece] = []
        for verdict, count in count_verdicts(results).items():
            counts += [(f"{self._sign(verdict)} {count} {verdict}", verdict_style(verdict, results)), "   "]
        say(console, *counts)
        judged = "1 claim" if len(results) == 1 else f"{len(results)} claims"
        missing = f" of {self._total}" if len(results) < self._total else ""
        cut = ", interrupted" if info.interrupted else ""
        say(
            console,
            f"{judged}{missing} in {short_seconds(info.seconds)}, seed {info.seed}, {info.dtype} on {info.device}{cut}",
        )
        against = [result.id for result in results if not result.as_expected]
        if against:
            say(console, (f"{len(against)} against expectation: ", "bold red"), ", ".join(map(one_line, against)))
        width = max(map(len, paths), default=0)
        for name, path in paths.items():
            say(console, (f"{name.ljust(width)}  ", "dim"), str(path))
        meaning = EXIT_MEANINGS.get(exit_code, "")
        say(
            console,
            (f"exit {exit_code}", exit_style(exit_code)),
            f": {meaning}" if meaning else "",
        )

    def _sign(self, verdict: Verdict) -> str:
        look = LOOKS[verdict]
        return look.ascii_sign if self._console.options.ascii_only else look.sign

    def _line(self, result: ClaimResult) -> None:
        console = self._console
        style = verdict_style(result.verdict, [result])
        name = one_line(result.id)
        # The sign says whether the verdict is the expected one; the verdict itself follows in words.
        sign = self._sign(Verdict.HOLDS if result.as_expected else Verdict.REFUTED)
        head = [(f"{sign} ", "green" if result.as_expected else "red"), (name.ljust(self._id_width), "bold")]
        if len(name) > self._id_width:
            # A long id keeps its whole length on a line of its own, so that the columns stay put.
            say(console, *head)
            head = [("  " + " " * self._id_width, "")]
        margin, scale = shown_margin(result)
        # Minutes would not fit the column.
        took = short_seconds(result.seconds) if result.seconds < 60 else f"{result.seconds:.0f} s"
        columns = f"{_margin(margin, 3, _MARGIN_WIDTH)}{_margin(relative_margin(margin, scale), 2, _RELATIVE_WIDTH)}"
        pieces: list[Piece] = [
            *head,
            (f" {result.verdict.ljust(_VERDICT_WIDTH)}", style),
            (f" {result.evidence.ljust(9)}", "dim"),
            f"{columns}{f'{result.met}/{result.instances}'.rjust(_MET_WIDTH)}",
            (f" {took.rjust(_TIME_WIDTH)}", "dim"),
        ]
        room = console.width - self._id_width - _REST
        wrap = room < 0
        if room >= 2 + _MARK_WIDTH:
            mark = "unexpected" if not result.as_expected else "expected" * (result.verdict is not Verdict.HOLDS)
            pieces.append((f"  {mark.ljust(_MARK_WIDTH)}", "dim" if result.as_expected else "bold red"))
            room -= 4 + _MARK_WIDTH
        if room >= _TITLE_ROOM and result.title:
            title = one_line(result.title)
            pieces.append((f"  {title if len(title) <= room else title[: room - 1] + '…'}", "dim"))
        say(console, *pieces, wrap=wrap)

    def _details(self, result: ClaimResult) -> None:
        console = self._console
        reason = f": {one_line(result.reason)}" if result.reason and not result.problems else ""
        say(console, (expectation(result), "red"), reason, indent=_INDENT)
        for problem in result.problems:
            render_problem(console, problem, indent=_INDENT)
        witness = result.counterexample or result.undecided or result.nearest
        if witness is not None:
            self._witness(witness, result)
        worst, scale = worst_margin(result)
        if result.counterexample is not None and worst is not None and worst.lo < result.counterexample.margin.lo:
            words = f"before shrinking, the worst margin was {margin_words(worst, scale)}"
            say(console, (words, "dim"), indent=_INDENT)
        if result.refined:
            say(console, (second_look(result), "dim"), indent=_INDENT)
        if result.trace:
            for line in result.trace.rstrip().splitlines()[-_TRACE_LINES:]:
                say(console, (line, "dim"), indent=_INDENT)
        if result.position and not result.problems:
            say(console, (result.position, "dim"), indent=_INDENT)

    def _witness(self, witness: Witness, result: ClaimResult) -> None:
        console = self._console
        if witness.relation:
            truth = "open" if witness is result.undecided else "false"
            say(
                console,
                (f"{witness.conclusion}: ", "cyan"),
                f"{witness.lhs} {witness.relation} {witness.rhs} is {truth}, "
                f"margin {margin_words(witness.margin, witness.scale)}",
                indent=_INDENT,
            )
        elif witness.argument:
            say(console, (f"{witness.conclusion}: ", "cyan"), one_line(witness.argument), indent=_INDENT)
        say_values(console, witness.values, indent=_INDENT)
        sizes = ", ".join(f"{name} = {size}" for name, size in {**witness.sizes, **witness.step}.items())
        place = f"setting {witness.setting}, {witness.numbered}, seed {result.seed}"
        words = "; ".join(one_line(part) for part in (witness.computed, witness.family, sizes, place) if part)
        say(console, (words, "dim"), indent=_INDENT)
        if result.replay is not None:
            say(console, ("replay: ", "dim"), replay_command(result.replay), indent=_INDENT)


def _margin(margin: Margin | None, digits: int, width: int) -> str:
    """Return a margin for a column; where both ends would not fit, the larger one, or the one closer to zero."""
    text = short_margin(margin, digits=digits)
    if margin is not None and len(text) >= width:
        low, high = margin.lo, margin.hi
        size = short_number(max(-low, high), digits=1)
        text = f"≥ {short_number(low, digits=2)}" if low > 0 else f"≤ {short_number(high, digits=2)}"
        text = f"0 ± {size}" if low * high <= 0 else text
    return f" {text}".rjust(width)
