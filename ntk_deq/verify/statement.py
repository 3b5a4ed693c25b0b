"""The lines of a claim as the report shows them, typeset."""

from __future__ import annotations

from ntk_deq.claims.claim import Claim, Formula
from ntk_deq.claims.latex import to_latex
from ntk_deq.claims.mathml import to_mathml
from ntk_deq.verify.results import StatementLine


def statement_lines(claim: Claim) -> tuple[StatementLine, ...]:
    """Return the given, let, assume and conclude lines of a claim, each as text, MathML and LaTeX."""
    lines = [StatementLine("given", free.name, free.domain.text, "", "") for free in claim.given.values()]
    for section, formulas in (("let", claim.let), ("assume", claim.assume), ("conclude", claim.conclude)):
        lines += [_line(section, formula) for formula in formulas.values()]
    return tuple(lines)


def _line(section: str, formula: Formula) -> StatementLine:
    return StatementLine(section, formula.name, formula.text, to_mathml(formula.expr), to_latex(formula.expr))
