"""What is true of a function stands in its record and its twins: nothing else asks which function it meets."""

from __future__ import annotations

import ast
from pathlib import Path

import ntk_deq
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functions import FUNCTIONS

ROOT = Path(ntk_deq.__file__).parent
PARTS = ("language", "claims", "evaluation", "systems", "prove", "verify")

_FORMULAS = {Parameter.VARIABLE, Parameter.FUNCTION, Parameter.OPERAND, Parameter.STATEMENT, Parameter.STATE}
OF_FORMULAS = {name for name, record in FUNCTIONS.items() if _FORMULAS & set(record.parameters)}
"""`grad`, `next`, `minimum` are no functions of values: each reader of formulas has its own meaning for them."""

HOMES = {
    "language/functionals.py",
    "language/functions.py",
    "language/number_functions.py",
    "language/pieces.py",
    "evaluation/convex",
    "evaluation/derivatives",
    "evaluation/functions",
    "verify/existence",
}
"""Where records and twins stand, and rooms that are rules of one kind, function by function."""


OTHER = "other words that are spelt alike: letters, accents, rules of mutation, keys of runs, maps of a model, sets"
SCRIPT = "functions of a script: those of Python, and those that a script defines itself"

EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "language/domain.py": (OTHER, "psd"),
    "language/notation/latex.py": (
        "names that LaTeX has commands for",
        *"arccos arctan cos det exp log max min sin tanh".split(),
    ),
    "language/notation/mathml.py": (OTHER, "dot"),
    "language/notation/__init__.py": (OTHER, "pi", "rho"),
    "language/row_program.py": (
        "it leaves rows apart only where it is that of rows",
        "softmax",
    ),
    "claims/existence.py": ("it reads the `max` that it wrote itself", "max"),
    "claims/mutation.py": (OTHER, "norm", "sign", "step"),
    "claims/mutation_rules.py": (OTHER, "sign", "step"),
    "systems/declared_model.py": (OTHER, "step"),
    "systems/formula_layer.py": ("a bound of Python numbers, beside sums, products and powers", "max"),
    "systems/parameter_slopes.py": ("the diagonal of a slope that is a product of two vectors", "diag"),
    "verify/printer.py": (SCRIPT, *"abs max min step commutation sqrtm vec blockdiag diag".split()),
}
"""File by file, why names stand there, and which."""


def asked(tree: ast.Module) -> set[str]:
    """Return the strings that are compared with, matched, or keys and members of a literal that is looked up."""
    found: list[ast.expr | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                for side in (node.left, *node.comparators):
                    found += side.elts if isinstance(side, ast.Tuple | ast.Set | ast.List) else [side]
            case ast.MatchValue():
                found.append(node.value)
            case ast.Dict():
                found += node.keys
            case ast.Set():
                found += node.elts
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_what_counts_as_asking():
    text = "f('a') == 'b' or x in {'c', 'd'}; {'e': 'f'}; g('h')\nmatch x:\n    case 'i' | 'j':\n        pass"
    assert asked(ast.parse(text)) == {"b", "c", "d", "e", "i", "j"}


def test_no_function_is_asked_for_by_name():
    names = FUNCTIONS.keys() - OF_FORMULAS
    found = {}
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            place = path.relative_to(ROOT).as_posix()
            if not any(place == home or place.startswith(f"{home}/") for home in HOMES):
                if here := asked(ast.parse(path.read_text(encoding="utf-8"))) & names:
                    found[place] = here
    allowed = {place: set(words) for place, (_, *words) in EXCEPTIONS.items()}
    new = {place: words - allowed.get(place, set()) for place, words in found.items()}
    assert allowed == {place: found.get(place, set()) & words for place, words in allowed.items()}, "no longer needed"
    assert not {place: words for place, words in new.items() if words}, "ask the record, or say in EXCEPTIONS why not"
