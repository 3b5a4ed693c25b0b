"""How every figure looks, and the text on it.

Fonts, colours, line widths are set for one figure at a time, never for the whole process. Symbols and names, and
titles that are cut to the room that there is.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ntk_deq.errors import NtkDeqError
from ntk_deq.language.format import format_expr, short_decimal
from ntk_deq.language.notation.latex import to_latex
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.package import install_line
from ntk_deq.report import rate_parts
from ntk_deq.report.console import one_line
from ntk_deq.report.curves import ShareCurve
from ntk_deq.verify.results import Rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLUMN = 85 / 25.4
"""Width of a figure in inches: 85 mm, one column of a two-column paper."""

INK = "#1a1a1a"
SOFT = "#5c5c5c"
FAINT = "#b5b5b5"
MEASURED = "#0b4a8f"
BOUND = "#c2410c"
BOUND_DASHES: Any = (0, (4, 2))

# Any two differ by a Delta E of 15 at least, in simulated deuteranopia and protanopia too, and from `BOUND`, `INK` and
# white; the dashes tell the lines apart on a black-and-white print.
SERIES: tuple[tuple[str, Any], ...] = (
    (MEASURED, "-"),
    ("#b8963c", (0, (5, 1.4))),
    ("#00806c", (0, (1.2, 1.2))),
    ("#7b5cf0", (0, (6, 1.2, 1.2, 1.2))),
    ("#74bdf0", "-"),
    ("#8cc98c", (0, (3, 1, 1, 1, 1, 1))),
)


def series(number: int) -> tuple[str, Any]:
    """Return the colour and the dashes of a curve; beyond the last colour they come again with other dashes."""
    again, place = divmod(number, len(SERIES))
    return SERIES[place][0], SERIES[(place + again) % len(SERIES)][1]


_SETTINGS: Any = {
    # STIX comes with matplotlib, so that a figure looks the same everywhere, and sits well in a paper's text.
    "font.family": ["STIXGeneral", "DejaVu Sans"],
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.35,
    "ytick.minor.width": 0.35,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.4,
    "ytick.minor.size": 1.4,
    "axes.labelpad": 2.5,
    "lines.linewidth": 1.1,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.grid": False,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.02,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # Two runs must write the same bytes: no random ids in SVG.
    "svg.hashsalt": "ntk_deq",
    "savefig.dpi": 200,
}


class MissingPlotsError(NtkDeqError, ImportError):
    """matplotlib is not installed."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Set the look for the figures drawn inside, and put everything back afterwards.

    Raises:
        MissingPlotsError: matplotlib is not installed; says how to install it.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPlotsError(
            f"Figures need matplotlib, which is not installed. Install it with `{install_line('plots')}`."
        ) from error
    with matplotlib.rc_context(_SETTINGS):
        yield


def axes_or_new(ax: Axes | None, *, height: float) -> Axes:
    """Return `ax`, or the axes of a new figure of one column, which a notebook shows at the end of its cell."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, new = pyplot.subplots(figsize=(COLUMN, height), layout="constrained")
    return new


_BARS = {"norm": "", "fro": "_F"}
_SUBSCRIPTED = {
    "sigma_min": r"\sigma_{\min}",
    "sigma_max": r"\sigma_{\max}",
    "lambda_min": r"\lambda_{\min}",
    "lambda_max": r"\lambda_{\max}",
    "rho": r"\rho",
}
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
    return to_latex(Expr(Kind.NAME, Span(0, 0), name=name))


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


_WORD = re.compile(r"[^\s,._/-]+[\s,._/-]*|[\s,._/-]+")
_MOST_WORDS = 40
_PLAIN = 0.1  # what a letter counts for that every name has, in letters that tell names apart


def line_width(text: str) -> float:
    """Return about how wide a text is in STIX, in multiples of the font size; rather too wide than too narrow.

    Example:
        >>> line_width("ab") < line_width("AB") < line_width("日本")
        True
    """
    return sum(map(_width, text))


def fitted(text: str, room: float) -> str:
    """Return `text`, its end replaced by an ellipsis where it is wider than `room`.

    Example:
        >>> fitted("gradient descent", 20.0), fitted("gradient descent", 4.0)
        ('gradient descent', 'gradie…')
    """
    if line_width(text) <= room:
        return text
    kept = text
    while kept and line_width(kept + "…") > room:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def title_lines(text: str, room: float, *, most: int) -> list[str]:
    """Return `text` in lines of at most `room`, broken between words; the last of `most` lines ends in an ellipsis.

    Args:
        text: The title, on one line.
        room: Width of a line in multiples of the font size.
        most: The most lines.

    Example:
        >>> title_lines("Gradient descent converges linearly", 9.0, most=2)
        ['Gradient descent', 'converges linearly']
    """
    lines: list[str] = []
    for word in text.split():
        if (lines and line_width(f"{lines[-1]} {word}") <= room) or len(lines) == most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [fitted(line, room) for line in lines]


def fitted_names(names: Sequence[str], room: float) -> dict[str, str]:
    """Return each name as it fits into `room`: where one is wider, an ellipsis stands for whole words.

    Words that other names have too are left out first, and two names never become one as long as words can tell them
    apart. Only a name of a single long word is cut within that word.

    Args:
        names: The names, on one line each.
        room: Width of a name in multiples of the font size.

    Example:
        >>> list(fitted_names(["the-rate-of-descent", "the-rate-of-the-flow"], 9.0).values())
        ['the-rate-…descent', 'the-rate-…flow']
    """
    shown = {name: name for name in names}
    words = {name: _WORD.findall(name) for name in shown}
    common = Counter(word for found in words.values() for word in set(map(_bare, found)))
    taken = {name for name in shown if line_width(name) <= room}
    for name, found in words.items():
        if line_width(name) > room:
            weights = [len(word) * (_PLAIN + 1 - common[_bare(word)] / len(shown)) for word in found]
            kept = sorted(_without_words(found, weights, room)) if len(found) <= _MOST_WORDS else []
            labels = [label for _, label in kept] or [_without_middle(name, room)]
            shown[name] = next((label for label in labels if label not in taken), labels[0])
            taken.add(shown[name])
    return shown


def row_names(names: Sequence[str], room: float) -> list[str]:
    r"""Return names of rows on one line, or one that is too wide on two: what comes before its first comma on its own.

    Example:
        >>> row_names(["R.L5.1, tiny 3", "R.T4.4, scaled-lecun 17, window"], 12.0)
        ['R.L5.1, tiny 3', 'R.T4.4,\nscaled-lecun 17, window']
    """
    lines = [[name] if line_width(name) <= room else _halves(name, room) for name in names]
    heads = fitted_names([first for first, *_ in lines], room)
    rests = fitted_names([rest for _, *more in lines for rest in more], room)
    return ["\n".join([heads[first], *(rests[rest] for rest in more)]) for first, *more in lines]


def _halves(name: str, room: float) -> list[str]:
    """Break a name after its first comma, or where it has none between words as late as fits."""
    head, comma, rest = name.partition(", ")
    if comma:
        return [f"{head},", rest]
    blanks = [place for place, letter in enumerate(name) if letter == " " and line_width(name[:place]) <= room]
    return [name[: blanks[-1]], name[blanks[-1] + 1 :]] if blanks else [name]


def _without_words(words: Sequence[str], weights: Sequence[float], room: float) -> Iterator[tuple[float, str]]:
    """Yield what is left of a name without some neighbouring words, neither the first nor the last; with their weight.

    A cut weighs a letter more for each word that it is off the middle.
    """
    for first in range(1, len(words) - 1):
        for end in range(first + 1, len(words)):
            gap = " " if words[end - 1].endswith(" ") else ""
            label = f"{''.join(words[:first])}…{gap}{''.join(words[end:])}"
            if line_width(label) <= room:
                off = abs(first - (len(words) - end))  # in letters
                yield sum(weights[first:end]) + off, label
                break  # a longer cut from here loses more


def _without_middle(name: str, room: float) -> str:
    kept = len(name)
    while kept > 1 and line_width(_ends(name, kept)) > room:
        kept -= 1
    return _ends(name, kept)


def _ends(name: str, kept: int) -> str:
    return f"{name[: kept - kept // 2].rstrip()}…{name[len(name) - kept // 2 :].lstrip()}"


def _bare(word: str) -> str:
    return word.rstrip(" ,._/-")


def _width(character: str) -> float:
    if character == " ":
        return 0.25
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character.isupper():
        return 0.75
    return 0.5 if character.islower() else 0.55
