r"""Formulas of the claim language as matplotlib's mathtext, for labels of curves; what has no notation stays text."""

from __future__ import annotations

import re

from ntk_deq.language.format import format_expr, short_decimal
from ntk_deq.language.notation.names import latex_letter, symbol
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.report.console import one_line
from ntk_deq.report.runs.curves import ShareCurve
from ntk_deq.report.runs.words import rate_parts
from ntk_deq.verify.training.summary import Rate

_BARS = {"norm": "", "fro": "_F"}
_SUBSCRIPTED = {
    "sigma_min": r"\sigma_{\min}",
    "sigma_max": r"\sigma_{\max}",
    "lambda_min": r"\lambda_{\min}",
    "lambda_max": r"\lambda_{\max}",
    "rho": r"\rho",
}
_WORDS = {"path_length": r"\ell"}
_RELATIONS = {"<=": r"\leq", ">=": r"\geq", "<": "<", ">": ">", "==": "="}
# A longer side does not fit beside a figure of one column.
_LONGEST_BOUND = 22
_LONGEST_LABEL = 34


def escaped(text: str) -> str:
    r"""Return text that matplotlib shows as it is: dollar signs would start a formula.

    Example:
        >>> escaped("cost $5")
        'cost \\$5'
    """
    return one_line(text).replace("$", r"\$")


def math_text(expr: Expr) -> str | None:
    r"""Return a formula as mathtext without dollar signs, or None where it has parts without a notation here.

    A quantity at a step is written without the step, which the axis shows: `norm(W[k])` is the norm of W.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> math_text(parse("sigma_min(Z[k])")), math_text(parse("alpha0/2")), math_text(parse("fro(W[k] - W[0])"))
        ('\\sigma_{\\min}(Z)', '\\alpha_{0}/2', '\\Vert W - W(0)\\Vert_F')
    """
    parts = [math_text(part) for part in expr.args]
    if expr.kind is Kind.NAME:
        return _name(expr.name)
    if expr.kind is Kind.NUMBER and expr.value is not None:
        return str(expr.value) if expr.value.denominator == 1 else math_number(short_decimal(float(expr.value)))[1:-1]
    if expr.kind is Kind.INDEX:
        step = expr.args[0]
        return (
            _name(expr.name)
            if step.kind is Kind.NAME
            else None
            if parts[0] is None
            else f"{_name(expr.name)}({parts[0]})"
        )
    if any(part is None for part in parts):
        return None
    return _compound(expr, [part for part in parts if part is not None])


def _compound(expr: Expr, parts: list[str]) -> str | None:
    fenced = [
        f"({part})" if arg.kind in (Kind.ADD, Kind.SUBTRACT) else part
        for arg, part in zip(expr.args, parts, strict=True)
    ]
    if expr.kind is Kind.CALL:
        if expr.name in _BARS:
            return rf"\Vert {parts[0]}\Vert{_BARS[expr.name]}"
        return f"{_SUBSCRIPTED[expr.name]}({parts[0]})" if expr.name in _SUBSCRIPTED else None
    if expr.kind in (Kind.ADD, Kind.SUBTRACT):
        return f"{parts[0]} {'+' if expr.kind is Kind.ADD else '-'} {fenced[1]}"
    if expr.kind is Kind.MULTIPLY:
        return rf"{fenced[0]}\,{fenced[1]}"
    if expr.kind is Kind.DIVIDE:
        lower = f"({parts[1]})" if expr.args[1].kind in (Kind.MULTIPLY, Kind.DIVIDE) else fenced[1]
        return f"{fenced[0]}/{lower}"
    if expr.kind is Kind.POWER and expr.args[0].kind in (Kind.NAME, Kind.CALL):
        return f"{{{parts[0]}}}^{{{parts[1]}}}"
    return None


def _name(name: str) -> str:
    if name in _WORDS:
        return _WORDS[name]
    sign = symbol(name)
    base = latex_letter(sign.base)
    base = rf"\{sign.accent}{{{base}}}" if sign.accent else base
    if not sign.subscript:
        return base
    letters = ",".join(latex_letter(part) for part in sign.subscript.split(","))
    return f"{base}_{{{letters}}}"


def inequality_label(curve: ShareCurve) -> str:
    """Return a comparison as the label of its curve, in mathematical letters as far as they fit."""
    if curve.sides is None:
        return _shortened(curve.curve.name)
    left, sign, right = curve.sides
    bound = math_text(right)
    if bound is None or len(format_expr(right)) > _LONGEST_BOUND:
        bound = r"\mathrm{bound}"
    measured = math_text(left)
    if measured is None:
        return _shortened(f"{format_expr(left)} {sign} …")
    return f"${measured} {_RELATIONS[sign]} {bound}$"


def parameter_symbol(name: str) -> str:
    r"""Return the name of a parameter as mathtext; one that is no name of the claim language is set upright.

    Example:
        >>> parameter_symbol("W1"), parameter_symbol("layer.weight")
        ('W_{1}', '\\mathrm{layer.weight}')
    """
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return _name(name)
    return rf"\mathrm{{{re.sub(r'[^A-Za-z0-9.,+*/ -]', '?', name)}}}"


def _shortened(text: str) -> str:
    text = one_line(text)
    return escaped(text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…")


def math_number(text: str) -> str:
    r"""Return a printed number as mathtext.

    Example:
        >>> math_number("1.2e-3"), math_number("0.25"), math_number("-inf")
        ('$1.2\\times 10^{-3}$', '$0.25$', '$-\\infty$')
    """
    text = text.replace("inf", r"\infty").replace("nan", r"\mathrm{nan}")
    mantissa, mark, exponent = text.partition("e")
    return rf"${mantissa}\times 10^{{{exponent}}}$" if mark else f"${mantissa}$"


def math_interval(rate: Rate) -> str:
    r"""Return a rate with its interval as mathtext, a power of ten that all three share written once.

    Example:
        >>> math_interval(Rate(0.0041, 0.004, 0.0042)), math_interval(Rate(0.5, 0.5, 0.5))
        ('$4.1\\,(4.0\\ \\mathrm{to}\\ 4.2)\\times 10^{-3}$', '$0.5$')
    """
    parts = rate_parts(rate)
    if len(parts) == 1:
        return math_number(parts[0])
    mantissas, _, exponents = zip(*(part.partition("e") for part in parts), strict=True)
    if len(set(exponents)) > 1:
        value, low, high = map(math_number, parts)
        return f"{value} ({low} to {high})"
    power = rf"\times 10^{{{exponents[0]}}}" if exponents[0] else ""
    return rf"${mantissas[0]}\,({mantissas[1]}\ \mathrm{{to}}\ {mantissas[2]}){power}$"
