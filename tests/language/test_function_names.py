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
    "language/activation_functions.py",
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


ALGEBRA = "the rules of sums and products name their own words: zero, one, the unit, the product of entries"
PRINT = "notation and code that no pattern of a record can say"

EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "language/domain.py": (
        "numbers of draws have functions of their own",
        *"abs exp log max min sqrt psd".split(),
    ),
    "language/expansion.py": ("what runs over a range is written out", "max", "min", "sum"),
    "language/families.py": ("what runs over a range is written out", "sum"),
    "language/indices.py": ("what runs over a range is written out", "blockdiag", "max", "min"),
    "language/fixed_point_map.py": (ALGEBRA, "hadamard"),
    "language/loss.py": (ALGEBRA, "dot", "hadamard", "sum"),
    "language/notation/latex.py": (
        "names that LaTeX has commands for",
        *"arccos arctan cos det exp log max min sin tanh".split(),
    ),
    "language/notation/mathml.py": (PRINT, *"dot ones sum zeros".split()),
    "language/notation/__init__.py": ("letters", "pi", "rho"),
    "language/row_program.py": (ALGEBRA, "hadamard", "ones", "softmax", "zeros"),
    "language/symmetry.py": (ALGEBRA, "I", "diag", "ones", "zeros"),
    "language/tree.py": ("a number that no one may call otherwise", "pi"),
    "claims/check.py": (ALGEBRA, "I", "diag", "lambda_sym", "ones", "zeros"),
    "claims/certificates.py": (ALGEBRA, "max"),
    "claims/mutation.py": ("names of mutation rules", "norm", "sign", "step"),
    "claims/mutation_rules.py": ("what a Kronecker product needs, and names of rules", "kron", "sign", "step"),
    "claims/systems.py": ("a reserved word of ranges", "max"),
    "systems/declared_model.py": ("the maps of a model", "step"),
    "systems/formula_layer.py": ("the algebra of bounds and the short form of kernels", "max", "relu"),
    "systems/parameter_slopes.py": (ALGEBRA, "diag", "inv"),
    "prove/problem.py": ("the prover has terms for six functions", "min"),
    "verify/equations/__init__.py": (
        "equations of eigenvectors are read by their form",
        *"I lambda_max lambda_min zeros".split(),
    ),
    "verify/training/between.py": ("what is known between steps and times is read off its form", "exp"),
    "verify/printer.py": (
        "the twins in NumPy, and names that a script may not shadow",
        *"abs max min step I blockdiag commutation diag dot hadamard inv khatri_rao".split(),
        *"kron kronsum ones pinv softmax sqrtm vec zeros".split(),
    ),
    "verify/script.py": (
        "what a script defines or may not shadow",
        *"abs commutation max min sqrtm vec".split(),
    ),
    "verify/tangents.py": ("their slopes in NumPy", "det", "inv"),
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
    assert not {place: words for place, words in new.items() if words}, "ask the record, or say in EXCEPTIONS why not"
