"""Write the generated parts of the documentation: tables of two of its pages, and the JSON Schema of claim files.

Run `python docs/generate.py` after a change to the language; a test fails where these parts are out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from ntk_deq.claims import documents, load, schema
from ntk_deq.claims.validate import claim_file_schema
from ntk_deq.evaluation.balls import MAX_STEP_TUPLES
from ntk_deq.files import yaml as yaml_strict
from ntk_deq.language import parser, recursion, run, shapes, tree
from ntk_deq.language.declaration import model_names, model_signature
from ntk_deq.language.domain import DISTRIBUTIONS, DomainKind
from ntk_deq.language.functions import FUNCTIONS, reference

HERE = Path(__file__).parent
PAGE = HERE / "claim-language.md"
GALLERY = HERE / "gallery.md"
SOLVERS = HERE.parent / "checks" / "results" / "solver_comparison.json"
SCHEMA = HERE / "claim-file.schema.json"

_PART = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# An interval and a range of integers are written with their bounds; every other set by its name.
_DOMAIN_FORMS = {
    DomainKind.INTERVAL: ("(0, 1)`, `[0, 1]`, `(0, 1/2]`, `[1, inf)", "every entry in the interval"),
    DomainKind.INTEGER: ("integer 1..5", "every entry a whole number of the range, both ends included"),
}
_DOMAIN_WORDS = {
    DomainKind.REAL: "every entry a real number",
    DomainKind.NONNEGATIVE: "every entry >= 0",
    DomainKind.POSITIVE: "every entry > 0",
    DomainKind.SYMMETRIC: "square, equal to its transpose",
    DomainKind.SKEW: "square, minus its transpose",
    DomainKind.PSD: "square, symmetric, eigenvalues >= 0",
    DomainKind.DIAGONAL: "square, zero off the diagonal",
    DomainKind.ORTHOGONAL: "square, its transpose is its inverse",
    DomainKind.UNIT_ROWS: "each row of Euclidean norm 1; a vector counts as one row",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def code(text: object) -> str:
    """Return a text set as code."""
    return f"`{text}`"


def functions() -> str:
    """Return the functions of the language, a table a group."""
    parts: list[str] = []
    rows = reference()
    for group in dict.fromkeys(group for group, _, _ in rows):
        own = [(code(signature), summary) for other, signature, summary in rows if other == group]
        parts.append(f"**{group}**\n\n{table(['call', 'meaning'], own)}")
    model_only = [name for name, function in FUNCTIONS.items() if function.needs_model]
    parts.append(f"Only in a setting with a model: {', '.join(map(code, model_only))}.")
    return "\n\n".join(parts)


def distributions() -> str:
    """Return the distributions that a setting may draw from."""
    return table(["written", "a draw is"], [(code(d.usage), d.summary) for d in DISTRIBUTIONS.values()])


def domains() -> str:
    """Return the sets that a variable may range over."""
    rows = []
    for kind in DomainKind:
        written, meaning = _DOMAIN_FORMS.get(kind) or (kind.value, _DOMAIN_WORDS[kind])
        rows.append((code(written), meaning))
    return table(["domain", "members"], rows)


def models() -> str:
    """Return the registered models with their names."""
    parts = []
    for name in model_names():
        model = model_signature(name)
        rows = [
            (code(v.name), f"{' x '.join(v.shape) or 'scalar'}", str(v.role), v.description, code(v.domain))
            for v in model.variables
        ]
        defined = [
            f"- state `{model.state}` ({' x '.join(model.state_shape)}): the fixed point of `{model.map}`",
            f"- contraction factor `{model.contraction}`" if model.contraction else f"- modulus `{model.monotone}`",
            *(f"- `{key}` = `{text}`" for key, text in model.definitions.items()),
        ]
        head = ["variable", "shape", "role", "meaning", "domain where a setting names none"]
        title = f"**`{name}`**: {model.title}. Sizes {', '.join(map(code, model.sizes))}. From {model.reference}."
        parts.append("\n\n".join([title, table(head, rows), "\n".join(defined)]))
    return "\n\n".join(parts)


def keys(model: type[BaseModel]) -> str:
    """Return the keys of a part of a claim file, from the model that checks it."""
    rows = []
    for name, entry in model.model_fields.items():
        default = "required" if entry.is_required() else _default(entry.default)
        rows.append((code(name), default, entry.description or ""))
    return table(["key", "default", "meaning"], rows)


def _default(value: object) -> str:
    """Return a default as it would be written in a claim file; nothing for one that says nothing."""
    if value is None or value == "" or value == [] or value == {}:
        return ""
    return code(str(value).lower() if isinstance(value, bool) else value)


def limits() -> str:
    """Return the limits that keep a file from a stranger harmless."""
    rows = [
        ("size of a file", f"{yaml_strict.MAX_BYTES:,} bytes"),
        ("values in a file", f"{yaml_strict.MAX_NODES:,}"),
        ("nesting of YAML", f"{yaml_strict.MAX_DEPTH} levels"),
        ("files of a suite", f"{documents.MAX_FILES:,}"),
        ("levels of a glob of `include`", f"{documents.MAX_LEVELS}"),
        ("entries of directories that a glob looks at", f"{documents.MAX_LOOKED:,}"),
        ("claims of a suite", f"{load.MAX_CLAIMS:,}"),
        ("claims that a mutant rests on, one a mutant of the next", f"{load.MAX_CHAIN}"),
        ("entries of a section (`let`, `assume`, ...)", f"{schema.MAX_ENTRIES:,}"),
        ("characters of all formulas, inherited ones counted again", f"{load.MAX_TEXT:,}"),
        ("characters of an expression", f"{parser.MAX_TEXT:,}"),
        ("nesting of an expression", f"{parser.MAX_DEPTH} levels"),
        ("characters of a name or a number", f"{tree.MAX_LITERAL}"),
        ("power of ten in a number", f"-{tree.MAX_EXPONENT} to {tree.MAX_EXPONENT}"),
        ("power of a matrix", f"-{shapes.MAX_MATRIX_POWER:,} to {shapes.MAX_MATRIX_POWER:,}"),
        ("a size", f"1 to {schema.MAX_SIZE:,}"),
        ("entries of a matrix", f"{shapes.MAX_ENTRIES:,} (1 GiB in float64)"),
        ("steps of a fixed-point run, or of a recursion", f"{run.MAX_STEPS:,}"),
        ("steps of a training run", f"{run.MAX_TRAINING_STEPS:,}"),
        ("tuples of steps of one `for all`", f"{MAX_STEP_TUPLES:,}"),
        ("starts of a recursion, and steps that it looks back", f"{recursion.MAX_STARTS}"),
    ]
    return table(["what", "at most"], rows)


def solvers() -> str:
    """Return the steps and the processor time of the solvers of monotone layers, as they are stored."""
    found = json.loads(SOLVERS.read_text(encoding="utf-8"))["values"]
    names = ("picard", "damped", "anderson", "forward-backward", "peaceman-rachford")
    rows = []
    for i, m in enumerate(found["moduli"]):
        for j, skew in enumerate(found["skews"]):
            for k, width in enumerate(found["widths"]):
                row = [f"{m:g}", f"{skew:g}", str(width), f"{found['lengths'][i][j][k]:.3g}"]
                for name in (solver.replace("-", "_") for solver in names):
                    steps, seconds = (found[f"{kind}_{name}"][i][j][k] for kind in ("steps", "seconds"))
                    row.append("" if steps is None else f"{steps:.0f}; {1e3 * seconds:.3g} ms")
                rows.append(row)
    return table(["m", "skew part", "width", "L", *names], rows)


PARTS: dict[str, Callable[[], str]] = {
    "file-keys": lambda: keys(schema.ClaimFile),
    "source-keys": lambda: keys(schema.SourceModel),
    "setting-keys": lambda: keys(schema.SettingModel),
    "system-keys": lambda: keys(schema.SystemModel),
    "system-variable-keys": lambda: keys(schema.SystemVariableModel),
    "image-keys": lambda: keys(schema.ImagesModel),
    "claim-keys": lambda: keys(schema.ClaimModel),
    **{f"{name}-keys": partial(keys, model) for name, model in schema.RUN_MODELS.items()},
    "choose-keys": lambda: keys(schema.ChooseModel),
    "functions": functions,
    "distributions": distributions,
    "domains": domains,
    "models": models,
    "limits": limits,
    "solvers": solvers,
}


def page(text: str) -> str:
    """Return a page with every generated part worked out anew; a part of an unknown name is a KeyError."""
    return _PART.sub(lambda match: f"{match[1]}{PARTS[match['name']]()}\n{match[3]}", text)


def schema_text() -> str:
    """Return the JSON Schema as `verify-claims schema` prints it."""
    return json.dumps(claim_file_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Bring the pages and the schema up to date."""
    for path in (PAGE, GALLERY):
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
