"""The lines of a claim as the report shows them, typeset."""

from __future__ import annotations

from ntk_deq.claims.claim import Claim, Formula
from ntk_deq.claims.describe import choose_words, run_words
from ntk_deq.claims.latex import to_latex
from ntk_deq.claims.mathml import to_mathml
from ntk_deq.verify.results import StatementLine


def statement_lines(claim: Claim) -> tuple[StatementLine, ...]:
    """Return the given, choose, let, assume, run and conclude lines; formulas also as MathML and LaTeX."""
    lines = [StatementLine("given", free.name, free.domain.text, "", "") for free in claim.given.values()]
    chosen = choose_words(claim)
    if chosen is not None:
        lines.append(StatementLine("choose", "constants", chosen, "", ""))
    for section, formulas in (("let", claim.let), ("assume", claim.assume)):
        lines += [_line(section, formula) for formula in formulas.values()]
    if claim.run is not None:
        lines.append(StatementLine("run", claim.run.method, run_words(claim.run), "", ""))
    return (*lines, *(_line("conclude", formula) for formula in claim.conclude.values()))


def _line(section: str, formula: Formula) -> StatementLine:
    return StatementLine(section, formula.name, formula.text, to_mathml(formula.expr), to_latex(formula.expr))
