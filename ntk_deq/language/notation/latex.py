"""SymPy's LaTeX printer, told to keep the source's order and notation and to evaluate nothing. Imports SymPy."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import sympy
from sympy.core.symbol import Str
from sympy.printing.latex import LatexPrinter

from ntk_deq.language.format import ATOM, POWER, PRODUCT, SUM, decimal_places, format_number, inclusion_of, selectors
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.notation import latex_letter, symbol
from ntk_deq.language.notation.sympy import OVER, MatrixQuantity, Quantity, convert
from ntk_deq.language.record import Fold
from ntk_deq.language.run import PATH_LENGTH
from ntk_deq.language.symmetry import order_of
from ntk_deq.language.tree import Expr, Kind, Sign

if TYPE_CHECKING:
    import sympy


_TENSOR = (SUM + PRODUCT) / 2
_SIGNS = {"<=": r"\leq", "<": "<", ">=": r"\geq", ">": ">", "==": "=", "!=": r"\neq"}
_ACCENTS = {"hat": r"\hat", "bar": r"\bar", "tilde": r"\tilde", "dot": r"\dot"}

# Of a step and of a time, {0} and {1} what stands before and in the brackets.
_INDEXED = {"[]": r"{0}^{{\left({1}\right)}}", "()": r"{0}\left({1}\right)"}
# Of a member of a family, and of one at a step or at a time.
_INDEXED |= {"_": "{0}_{{{1}}}", "_[]": r"{0}_{{{1}}}^{{\left({2}\right)}}", "_()": r"{0}_{{{1}}}\left({2}\right)"}
_INDEXED["->"] = r"{0} \mapsto {1}"
_WORD = r"\mathrm{"
_ENDS_IN_WORD = re.compile(r"\\mathrm\{[^{}]*\}(_\{[^{}]*\})?$")
_LEVELS = {"at": _TENSOR, "->": SUM, "grad": _TENSOR, "jac": PRODUCT, "[]": POWER, "_[]": POWER}
_LEVELS |= {name + OVER: SUM if fold.signs else PRODUCT for name, fold in FOLDS.items()}


def latex(expr: Expr) -> str:
    """Return the LaTeX of a typed tree: connectives in the source's order, terms by the printer."""
    match expr.kind:
        case Kind.COMPARE if (order := order_of(expr)) is not None:
            larger, smaller, strict = order
            sign = r"\succ" if strict else r"\succeq"
            return f"{_term(larger)} {sign} {'0' if smaller is None else _term(smaller)}"
        case Kind.COMPARE if (inclusion := inclusion_of(expr)) is not None:
            subgradient, function, point = map(_term, inclusion)
            return rf"{subgradient} \in \partial \left({function}\right) \left({point}\right)"
        case Kind.COMPARE:
            text = _term(expr.args[0])
            for operator, operand in zip(expr.operators, expr.args[1:], strict=True):
                text += f" {_SIGNS[operator]} {_term(operand)}"
            return text
        case Kind.AND | Kind.OR:
            sign = r"\wedge" if expr.kind is Kind.AND else r"\vee"
            return f" {sign} ".join(_clause(part, (expr.kind, Kind.COMPARE)) for part in expr.args)
        case Kind.NOT:
            return rf"\neg {_clause(expr.args[0], ())}"
        case Kind.FOR_ALL | Kind.FOR_SOME:
            sign = r"\forall" if expr.kind is Kind.FOR_ALL else r"\exists"
            names = ", ".join(map(_name, expr.names))
            condition = rf" : {latex(expr.args[1])}" if len(expr.args) > 1 else ""
            return rf"{_clause(expr.args[0], _UNQUANTIFIED)} \quad {sign} {names}{condition}"
        case Kind.EACH | Kind.SOME:
            sign = r"\forall" if expr.kind is Kind.EACH else r"\exists"
            start, stop = map(latex, expr.args[1:])
            reach = rf"{_name(expr.names[0])} = {start}, \ldots, {stop}"
            return rf"{_clause(expr.args[0], _UNQUANTIFIED)} \quad {sign} {reach}"
        case _:
            return _term(expr)


_UNQUANTIFIED = (Kind.COMPARE, Kind.AND, Kind.EACH, Kind.SOME)


def _clause(expr: Expr, bare: tuple[Kind, ...]) -> str:
    text = latex(expr)
    return text if expr.kind in bare else rf"\left({text}\right)"


def _term(expr: Expr) -> str:
    text: str = _Printer({"order": "none"}).doprint(convert(expr))
    return text


def _name(name: str) -> str:
    if name == PATH_LENGTH:
        return r"\ell"
    sign = symbol(name)
    base = latex_letter(sign.base)
    if sign.accent:
        base = f"{_ACCENTS[sign.accent]}{{{base}}}"
    if sign.subscript:
        base += f"_{{{','.join(latex_letter(part) for part in sign.subscript.split(','))}}}"
    return base


def _level(expr: Any) -> float:
    """Return how tightly an object binds as printed below."""
    if isinstance(expr, (Quantity, MatrixQuantity)):
        if expr.label != "1x1":
            function = FUNCTIONS.get(expr.label)
            if function is not None and (function.infix or function.exponent):
                return _TENSOR if function.infix else POWER
            return _LEVELS.get(expr.label, ATOM)
        inner = _level(expr.arguments[0])
        return _TENSOR if inner == PRODUCT else inner  # (b'b) A scales A, b'b A would not multiply
    if isinstance(expr, sympy.Rational):
        if expr < 0:
            return SUM
        return ATOM if format_number(Fraction(expr.p, expr.q)).replace(".", "").isdigit() else PRODUCT
    if isinstance(expr, (sympy.Add, sympy.MatAdd)) or _negated(expr) is not None:
        return SUM
    if isinstance(expr, (sympy.KroneckerProduct, sympy.HadamardProduct)):
        return _TENSOR
    if isinstance(expr, (sympy.Mul, sympy.MatMul)) or _is_reciprocal(expr):
        return PRODUCT
    powers = (sympy.Pow, sympy.MatPow, sympy.Transpose, sympy.Inverse, sympy.exp)
    return POWER if isinstance(expr, powers) else ATOM


def _negated(expr: Any) -> tuple[Any, ...] | None:
    """Return what follows the minus sign of a product that starts with -1, or None for any other object."""
    is_product = isinstance(expr, (sympy.Mul, sympy.MatMul)) and len(expr.args) > 1
    return tuple(expr.args[1:]) if is_product and expr.args[0] == -1 else None


def _is_reciprocal(expr: Any) -> bool:
    return isinstance(expr, sympy.Pow) and not isinstance(expr, (sympy.MatPow, sympy.exp)) and expr.args[1] == -1


_PIECES = frozenset(Sign) - {Sign.ROW, Sign.STACK}


def _row_of(argument: Any) -> tuple[Any, ...]:
    """Return what stands side by side in a row of a literal."""
    joined = isinstance(argument, (Quantity, MatrixQuantity)) and argument.label == Sign.ROW
    return tuple(argument.arguments) if joined else (argument,)


class _Printer(LatexPrinter):
    """SymPy's printer with the names of claim files; operators are printed as they stand in the source.

    Every object is printed once, however often what it stands in asks for it: calls may stand in calls many deep.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._printed: dict[int, tuple[Any, str]] = {}

    def _print(self, expr: Any, **settings: Any) -> str:
        if settings:
            return str(super()._print(expr, **settings))
        known = self._printed.get(id(expr))
        if known is None or known[0] is not expr:
            known = self._printed[id(expr)] = expr, str(super()._print(expr))
        return known[1]

    def _part(self, expr: Any, wanted: float) -> str:
        text: str = self._print(expr)
        return text if _level(expr) >= wanted else rf"\left({text}\right)"

    def _print_Rational(self, expr: Any) -> str:
        value = Fraction(expr.p, expr.q)
        sign = "-" if value < 0 else ""
        if decimal_places(abs(value)) is None:
            return rf"{sign}\frac{{{abs(value).numerator}}}{{{value.denominator}}}"
        mantissa, has_power, power = format_number(abs(value)).partition("e")
        if not has_power:
            return f"{sign}{mantissa}"
        digits = "" if mantissa == "1" else mantissa + r" \cdot "
        return f"{sign}{digits}10^{{{power}}}"

    def _print_Integer(self, expr: Any) -> str:
        return self._print_Rational(expr)

    def _print_Symbol(self, expr: Any, style: str = "plain") -> str:
        return _name(expr.name)

    def _print_MatrixSymbol(self, expr: Any, style: str = "plain") -> str:
        return _name(expr.name)

    def _print_Str(self, expr: Str) -> str:
        return _name(expr.name)

    def _print_Add(self, expr: Any, order: str | None = None) -> str:
        return self._sum(expr.args)

    def _print_MatAdd(self, expr: Any) -> str:
        return self._sum(expr.args)

    def _sum(self, terms: tuple[Any, ...]) -> str:
        text = self._part(terms[0], SUM)
        for term in terms[1:]:
            rest = _negated(term)
            text += f" + {self._part(term, _TENSOR)}" if rest is None else f" - {self._product(rest, _TENSOR)}"
        return text

    def _print_Mul(self, expr: Any) -> str:
        rest = _negated(expr)
        return self._product(expr.args, PRODUCT) if rest is None else f"- {self._product(rest, PRODUCT)}"

    def _print_MatMul(self, expr: Any) -> str:
        return self._print_Mul(expr)

    def _product(self, factors: tuple[Any, ...], alone: float) -> str:
        """Print factors side by side; `alone` is what a single one must bind as."""
        if len(factors) == 1:
            return self._part(factors[0], alone)
        if len(factors) == 2 and _is_reciprocal(factors[1]):
            return rf"\frac{{{self._print(factors[0])}}}{{{self._print(factors[1].args[0])}}}"
        text = self._part(factors[0], PRODUCT)
        for factor in factors[1:]:
            shown = self._part(factor, PRODUCT)
            # Digits side by side would read as one number, a letter and a name of several letters as one word.
            apart = shown[0].isdigit() or shown.startswith(_WORD) or _ENDS_IN_WORD.search(text)
            text += rf" \cdot {shown}" if apart else f" {shown}"
        return text

    def _print_Pow(self, expr: Any) -> str:
        base, exponent = expr.args
        if exponent == sympy.Rational(1, 2):
            return rf"\sqrt{{{self._print(base)}}}"
        if exponent == -1:
            return rf"\frac{{1}}{{{self._print(base)}}}"
        return f"{self._part(base, ATOM)}^{{{self._print(exponent)}}}"

    def _print_MatPow(self, expr: Any) -> str:
        return f"{self._part(expr.args[0], ATOM)}^{{{self._print(expr.args[1])}}}"

    def _print_Transpose(self, expr: Any) -> str:
        return rf"{self._part(expr.args[0], ATOM)}^{{\top}}"

    def _print_Inverse(self, expr: Any) -> str:
        return f"{self._part(expr.args[0], ATOM)}^{{-1}}"

    def _print_KroneckerProduct(self, expr: Any) -> str:
        return r" \otimes ".join(self._part(factor, POWER) for factor in expr.args)

    def _print_HadamardProduct(self, expr: Any) -> str:
        return r" \odot ".join(self._part(factor, POWER) for factor in expr.args)

    def _print_Identity(self, expr: Any) -> str:
        return f"I_{{{self._print(expr.shape[0])}}}"

    def _print_ZeroMatrix(self, expr: Any) -> str:
        return rf"0_{{{self._shape(expr)}}}"

    def _print_OneMatrix(self, expr: Any) -> str:
        return rf"1_{{{self._shape(expr)}}}"

    def _shape(self, expr: Any) -> str:
        return rf"{self._part(expr.shape[0], PRODUCT)} \times {self._part(expr.shape[1], PRODUCT)}"

    def _print_Determinant(self, expr: Any) -> str:
        return rf"\det\left({self._print(expr.args[0])}\right)"

    def _print_Quantity(self, expr: Quantity) -> str:
        return self._applied(expr.label, expr.arguments)

    def _print_MatrixQuantity(self, expr: MatrixQuantity) -> str:
        return self._applied(expr.label, expr.arguments)

    def _applied(self, label: str, arguments: tuple[Any, ...]) -> str:
        shown = [self._print(argument) for argument in arguments]
        if label == "1x1":
            return shown[0]
        if label.endswith(OVER):
            return self._over(label.removesuffix(OVER), arguments, shown)
        if label.startswith("_") and "_" in shown[0]:
            shown[0] = f"{{{shown[0]}}}"
        if label == "at":
            pairs = ", ".join(f"{left} = {right}" for left, right in zip(shown[1::2], shown[2::2], strict=True))
            return rf"\left. {shown[0]} \right|_{{{pairs}}}"
        if label in (Sign.ROW, Sign.STACK):
            rows = [arguments] if label == Sign.ROW else [_row_of(argument) for argument in arguments]
            lines = [" & ".join(map(self._print, row)) for row in rows]
            return r"\begin{pmatrix} " + r" \\ ".join(lines) + r" \end{pmatrix}"
        if label in _PIECES:
            inside = selectors(label, shown[1:], r" \ldots ")
            return rf"\left[{shown[0]}\right]_{{{', '.join(inside)}}}"
        named = r"\operatorname{{" + label.replace("_", r"\_") + r"}}\left({}\right)"
        function = FUNCTIONS.get(label)
        if function is not None and function.infix:
            return f" {function.infix[1]} ".join(self._part(argument, POWER) for argument in arguments)
        if function is not None and function.exponent:
            return f"{self._part(arguments[0], ATOM)}^{{{function.exponent}}}"
        pattern = _INDEXED.get(label) or (function and function.latex) or named
        return pattern.format(*shown) if "{0}" in pattern else pattern.format(", ".join(shown))

    def _over(self, name: str, arguments: tuple[Any, ...], shown: list[str]) -> str:
        """Print a sum, a product, a maximum over a range."""
        body, letter, start, stop, *rest = shown
        fold = FOLDS.get(name, Fold())
        if fold.signs is not None:
            factor = self._part(arguments[0], _TENSOR if fold.joins is Kind.ADD else POWER)
            return rf"{fold.signs[1]}_{{{letter} = {start}}}^{{{stop}}} {factor}"
        sign = rf"\{name}" if fold.of_numbers else rf"\operatorname*{{{name}}}"
        applied = "".join(rf"\left({argument}\right)" for argument in rest)
        return rf"{sign}_{{{letter} = {start}, \ldots, {stop}}} \left({body}\right){applied}"
