"""Claims from a few words, and exact truth of scalar claims by a second evaluator over the rationals."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.language.tree import Expr, Kind

HEAD = """suite: test
settings:
  scalars: {domain: {x: real, y: real, p: positive, q: positive, u: "(0, 1)", w: "[1, 3]"}}
  matrices: {sizes: {n: 1..3, m: 1..3}, domain: {A: "real[n, n]", B: "real[n, n]", R: "real[n, m]", v: "real[n]",
             P: "psd[n, n]", c: "(0, 1)"}}
  net: {model: implicit-relu, sizes: {N: 1..2, d: 1..2, m: 1..2}, domain: {gamma: "(0, 1)"}}
claims:
"""


def claim(folder: Path, body: str) -> Claim:
    """Return the claim with the given entries, such as `setting: scalars, conclude: x <= x`."""
    path = folder / "suite.yaml"
    path.write_text(HEAD + f"  - {{id: C, {body}}}\n", encoding="utf-8")
    found = load_suite(path).claims[0]
    assert isinstance(found, Claim), found.problems
    return found


class Silent(Exception):
    """The claim does not speak of this point: something has no value there."""


def value(expr: Expr, point: dict[str, Fraction], lets: dict[str, Expr]) -> Fraction | bool:
    """Return the exact value of a scalar expression without roots."""
    args = [value(arg, point, lets) for arg in expr.args]
    if expr.kind is Kind.NAME:
        return value(lets[expr.name], point, lets) if expr.name in lets else point[expr.name]
    if expr.kind is Kind.COMPARE:
        return all(_RELATIONS[s](a, b) for s, a, b in zip(expr.operators, args, args[1:], strict=False))
    if expr.kind is Kind.NUMBER:
        return expr.value
    if expr.kind is Kind.DIVIDE and args[1] == 0:
        raise Silent
    if expr.kind is Kind.POWER:
        base, exponent = args
        if exponent.denominator != 1 or (base == 0 and exponent < 0):
            raise Silent
        return base ** int(exponent)
    return _VALUES[expr.name if expr.kind is Kind.CALL else expr.kind](*args)


_RELATIONS: dict[str, Callable] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_VALUES: dict[str, Callable] = {
    Kind.ADD: lambda a, b: a + b,
    Kind.SUBTRACT: lambda a, b: a - b,
    Kind.MULTIPLY: lambda a, b: a * b,
    Kind.DIVIDE: lambda a, b: a / b,
    Kind.NEGATE: lambda a: -a,
    Kind.AND: lambda a, b: a and b,
    Kind.OR: lambda a, b: a or b,
    Kind.NOT: lambda a: not a,
    "max": max,
    "min": min,
    "abs": abs,
    "norm": abs,
    "relu": lambda a: max(a, Fraction(0)),
}


def speaks(claim: Claim, point: dict[str, Fraction]) -> tuple[bool, bool]:
    """Return whether a claim's hypotheses hold at a point, and whether its conclusions do.

    Raises:
        Silent: Some hypothesis or conclusion has no value there.
    """
    lets = {name: formula.expr for name, formula in claim.let.items()}
    assumed = [value(formula.expr, point, lets) for formula in claim.assume.values()]
    concluded = [value(formula.expr, point, lets) for formula in claim.conclude.values()]
    return all(assumed), all(concluded)
