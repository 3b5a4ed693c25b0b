"""A counterexample as a Python script that needs NumPy alone: values, definitions, equilibrium, both sides."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.environment import ModelFormulas, model_formulas
from ntk_deq.language.shapes import integer_literal
from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind
from ntk_deq.verify.results import Witness
from ntk_deq.verify.scripts.printer import Code, Printer, Shape, UnwritableError
from ntk_deq.verify.scripts.tangents import TANGENT, tangent
from ntk_deq.verify.twins import twin_of

_HELPERS = {
    "vec": '''\
def vec(a):
    """The columns of a matrix stacked into one."""
    return np.reshape(a, (-1, 1), order="F")
''',
    "commutation": '''\
def commutation(n, m):
    """The matrix K with K @ vec(A) == vec(A.T) for every n x m matrix A."""
    return np.eye(n * m)[np.arange(n * m).reshape((m, n)).T.ravel()]
''',
    "sqrtm": '''\
def sqrtm(a):
    """The square root of a symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(a)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
''',
    "settled": '''\
def settled(step, state):
    """Iterate a map until rounding alone moves the state."""
    least, since = np.inf, 0
    for _ in range(1_000_000):
        new = step(state)
        change = np.max(np.abs(new - state))
        state = new
        since = 0 if change < least else since + 1
        least = min(least, change)
        if change == 0 or since > 100:
            break
    if not change <= 1e-12 * max(1.0, np.max(np.abs(state))):
        print("the iteration has not settled: its last step still moved an entry by", change)
    return state
''',
    "solved": '''\
def solved(step, state):
    """A fixed point of a map, by Newton's method with slopes from differences."""
    for _ in range(4):
        state = step(state)
    size, unit = state.size, np.eye(state.size)
    for _ in range(50):
        residual = step(state) - state
        width = max(1.0, np.max(np.abs(state)))
        if np.max(np.abs(residual)) <= 1e-14 * width:
            break
        moved = [step(state + 1e-7 * width * np.reshape(row, state.shape)) - step(state) for row in unit]
        slopes = np.reshape(moved, (size, size)).T / (1e-7 * width)
        state = state + np.reshape(np.linalg.solve(unit - slopes, np.ravel(residual)), state.shape)
    change = np.max(np.abs(step(state) - state))
    if not change <= 1e-12 * max(1.0, np.max(np.abs(state))):
        print("no fixed point is found: at the last state the map moves an entry by", change)
    return state
''',
    "linear_solution": '''\
def linear_solution(push, shape):
    """The matrix d with d == push(d), for an affine map."""
    size = shape[0] * shape[1]
    units = [np.reshape(column, shape, order="F") for column in np.eye(size)]
    start = push(np.zeros(shape))
    slopes = np.hstack([vec(push(unit) - start) for unit in units])
    return np.reshape(np.linalg.solve(np.eye(size) - slopes, vec(start)), shape, order="F")
''',
    "jacobian": '''\
def jacobian(along, shape):
    """The derivatives along each entry of a variable, side by side."""
    units = [np.reshape(column, shape, order="F") for column in np.eye(shape[0] * shape[1])] if shape else [1.0]
    return np.hstack([vec(along(unit)) for unit in units])
''',
    "compare": '''\
def compare(left, relation, right):
    """Print both sides of a comparison and its margin, which is negative where it breaks."""
    less = {"<=": 1, "<": 1, ">=": -1, ">": -1}.get(relation)
    distance = np.linalg.norm(np.atleast_2d(left - right))
    margin = np.min(less * (right - left)) if less else distance if relation == "!=" else -distance
    print(left, relation, right, sep="\\n")
    print("margin", repr(float(margin)))
''',
}  # fmt: skip
_NEEDS = {"linear_solution": ("vec",), "jacobian": ("vec",)}
_TAKEN = {*_HELPERS, "np", "math", "float", "abs", "max", "min", "print", "range"}
_WRITTEN = r"d_|(.*_at|at|model_map|along|push)_\d+$"  # names that a script makes up

_LONGEST = 200_000  # characters; a longer script is none that anyone reads


def counterexample_script(claim: Claim, witness: Witness) -> str:
    """Return a script that prints both sides of the conclusion that a counterexample breaks.

    The variables are exact, the rest is computed in float64; derivatives are written out by the rules of calculus,
    through the equilibrium by the implicit function theorem.

    Args:
        claim: The claim.
        witness: The counterexample.

    Raises:
        UnwritableError: The conclusion has no form in NumPy, or a value is too large to print.
    """
    if unwritten := twin_of(claim).unwritten:
        raise UnwritableError(unwritten)
    script = _Script(claim, witness)
    formula = claim.conclude[witness.conclusion]
    block = _Block(script, [], known={})
    block.variables(witness.values)
    for name in script.needed(formula.expr):  # in their order, so that no chain exhausts the stack
        block.name(name)
    lines = []
    for left, relation, right in _comparisons(formula.expr):
        sides = [block.code(side) for side in (left, right)]
        if any(side.shape for side in sides) and not all(side.shape for side in sides):
            sides = [side.number if side.shape == (1, 1) else side for side in sides]
        lines.append(f"compare({sides[0].text}, {relation!r}, {sides[1].text})")
    head = [f"# {_plain(claim.id)}: {_plain(witness.conclusion)}: {_plain(formula.text)}"]
    head += [f"# {_plain(witness.computed)}"] if witness.computed else []
    head.append("# NumPy rounds to float64: a margin below about 1e-15 of the sides cannot be seen.")
    body = "\n".join([*block.lines, "", *lines])
    imports = ["import math\n", "import numpy as np\n"] if "math." in body else ["import numpy as np\n"]
    text = "\n".join([*head, *imports, *_helpers(body), "", body]) + "\n"
    if len(text) > _LONGEST:
        raise UnwritableError("the script would be too long to read")
    return text


def _plain(text: str) -> str:
    """Return a text as it can stand in a comment: on one line, without control characters."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def _comparisons(expr: Expr) -> Iterator[tuple[Expr, str, Expr]]:
    """Yield the comparisons that a formula states, those that confine a quantifier left out."""
    if expr.kind is Kind.COMPARE:
        for (left, right), relation in zip(pairwise(expr.args), expr.operators, strict=True):
            yield left, relation, right
        return
    for part in expr.args[:1] if expr.kind in QUANTIFIERS else expr.args:
        yield from _comparisons(part)


def _helpers(body: str) -> list[str]:
    """Return the helpers that a text calls, and those that they call."""
    called = {name for name in _HELPERS if f"{name}(" in body}
    called |= {needed for name in called for needed in _NEEDS.get(name, ())}
    return [f"\n{text}" for name, text in _HELPERS.items() if name in called]


class _Script:
    """What all blocks of a script share: the claim's formulas on this instance, and the helpers that are used."""

    def __init__(self, claim: Claim, witness: Witness) -> None:
        setting = next(setting for setting in claim.settings if setting.name == witness.setting)
        self.sizes: Mapping[str, int] = witness.sizes
        self.steps = {letter: int(step) for letter, step in witness.step.items()}
        self.lets = {name: formula.expr for name, formula in claim.let.items()}
        self.formulas: ModelFormulas | None = None
        self.state_shape: tuple[int, int] = (0, 0)
        if setting.model is not None:
            self.formulas = model_formulas(setting.model)
            self.state_shape = setting.model.state_at(witness.sizes)
        self._count = 0
        self._reached: dict[str, frozenset[str]] = {}

    @property
    def state(self) -> str | None:
        """The name of the model's state."""
        return None if self.formulas is None else self.formulas.state or None

    def formula(self, name: str) -> Expr | None:
        """Return the formula behind a name, or None for a variable, a size, a step or the state."""
        if name in self.lets:
            return self.lets[name]
        return None if self.formulas is None else self.formulas.definitions.get(name)

    def fresh(self, stem: str) -> str:
        """Return a name that nothing else has."""
        self._count += 1
        return f"{stem}_{self._count}"

    def depends(self, name: str, on: str) -> bool:
        """Whether the value of a name depends on a name: a variable, or the state."""
        return name == on or on in self._behind(name)

    def needed(self, expr: Expr) -> list[str]:
        """Return the definitions behind an expression, each after those that it uses."""
        names = _names(expr, self.state)
        behind = names.union(*map(self._behind, names))
        return [name for name in self.lets if name in behind]

    def _behind(self, name: str) -> frozenset[str]:
        """Return the names that the value of a name rests on, directly or not."""
        if name not in self._reached:
            found: set[str] = set()
            waiting = [name]
            while waiting:
                taken = waiting.pop()
                formula = self.formulas.map if self.formulas and taken == self.state else self.formula(taken)
                new = (_names(formula, self.state) if formula is not None else set()) - found
                found |= new
                waiting += new
            self._reached[name] = frozenset(found)
        return self._reached[name]


def _names(expr: Expr, state: str | None) -> set[str]:
    """Return the names in an expression; the state is in steps and in calls of the model too."""
    nodes = list(expr.walk())
    names = {node.name for node in nodes if node.kind in (Kind.NAME, Kind.INDEX)}
    called = any(node.kind is Kind.INDEX or node.name in ("next", "fixed_point") for node in nodes)
    return names | {state} if called and state is not None else names


class _Block(Printer):
    """A body of code: the module or a function. Names are assigned in it where they are first needed.

    Attributes:
        lines: Its lines so far, without indentation.
        known: What names mean here, those of the blocks around it included.
    """

    def __init__(self, script: _Script, lines: list[str], known: Mapping[str, Code]) -> None:
        self.script = script
        self.lines = lines
        self.known = dict(known)

    def variables(self, values: Mapping[str, Any]) -> None:
        """Assign the values of an instance, exactly, and its sizes."""
        for name, size in self.script.sizes.items():
            self.assign(name, Code(str(size), ()))
        for name, value in values.items():
            if value is None:
                raise UnwritableError(f"{name} is too large to print")
            if isinstance(value, int | float):
                self.assign(name, Code(repr(float(value)), ()))
                continue
            rows = [row if isinstance(row, list | tuple) else [row] for row in value]
            text = ",\n".join(f"    {[float(x) for x in row]}" for row in rows)
            self.assign(name, Code(f"np.array([\n{text},\n])", (len(rows), len(rows[0]))))

    def assign(self, name: str, code: Code) -> Code:
        """Give a name its value in this block."""
        spelt = _spelt(name)
        self.lines += f"{spelt} = {code.text}".split("\n")
        self.known[name] = Code(spelt, code.shape)
        return self.known[name]

    def size(self, name: str) -> int:
        """Return the value of a size letter, or of a step in an exponent."""
        found = self.script.sizes.get(name, self.script.steps.get(name))
        if found is None:
            raise UnwritableError(f"the step {name} is not a single one")
        return found

    def name(self, name: str) -> Code:
        """Return the code of a name; what it stands for is assigned first."""
        if name in self.known:
            return self.known[name]
        script = self.script
        if name in script.steps:
            return Code(str(script.steps[name]), ())
        formula = script.formula(name)
        if formula is not None:
            return self.assign(name, self.code(formula))
        if name == script.state:
            assert script.formulas is not None
            plain = not (script.formulas.local or script.formulas.monotone)  # else iteration may not lead there
            zero = f"np.zeros({script.state_shape})"
            found = self._settled(zero) if plain else Code(f"solved({self._map()}, {zero})", script.state_shape)
            return self.assign(name, found)
        raise UnwritableError(f"{name} has no value that can be written")

    def special(self, expr: Expr) -> Code:
        """Return the code of a step's value, of `at`, or of a call of the model or a derivative."""
        if expr.kind is Kind.INDEX:
            return self._step(expr)
        if expr.kind is Kind.AT:
            return self._at(expr)
        if expr.name == "next":
            return Code(f"{self._map()}({self.code(expr.args[0]).text})", self.script.state_shape)
        if expr.name == "fixed_point":
            return self._settled(self.code(expr.args[0]).text)
        return self._derivative(expr)

    def _settled(self, start: str) -> Code:
        return Code(f"settled({self._map()}, {start})", self.script.state_shape)

    def _function(self, stem: str, argument: str, inside: _Block, result: Code) -> str:
        """Write a function of one argument and return its name."""
        name = self.script.fresh(stem)
        self.lines += ["", f"def {name}({argument}):", *(f"    {line}" for line in inside.lines)]
        self.lines += [f"    return {result.text}", ""]
        return name

    def _map(self) -> str:
        """Return the name of the model's map as a function of the state, written first where it is not yet."""
        script = self.script
        if "model map" not in self.known:
            assert script.formulas is not None  # the language admits states only where there is a model
            state = script.formulas.state
            for node in script.formulas.map.walk():  # what does not depend on the state is computed once, outside
                if node.kind is Kind.NAME and not script.depends(node.name, state):
                    self.name(node.name)
            free = {name: code for name, code in self.known.items() if not script.depends(name, state)}
            inside = _Block(script, [], free | {state: Code(_spelt(state), script.state_shape)})
            result = inside.code(script.formulas.map)
            function = self._function("model_map", _spelt(state), inside, result)
            self.known["model map"] = Code(function, ())
        return self.known["model map"].text

    def _step(self, expr: Expr) -> Code:
        if expr.name != self.script.state:
            raise UnwritableError(f"`{expr.name}` at a step is not written out")
        step = self._whole(expr.args[0])
        start = Code(f"np.zeros({self.script.state_shape})", self.script.state_shape)
        name = f"{expr.name} {step}"
        if name not in self.known:
            function, spelt = self._map(), f"{_spelt(expr.name)}_at_{step}"
            self.lines += [f"{spelt} = {start.text}", f"for _ in range({step}):", f"    {spelt} = {function}({spelt})"]
            self.known[name] = Code(spelt, self.script.state_shape)
        return self.known[name]

    def _whole(self, expr: Expr) -> int:
        """Return the step that an index expression denotes."""
        literal = integer_literal(expr)
        if literal is not None:
            return literal
        if expr.kind is Kind.NAME:
            if expr.name not in self.script.steps:
                raise UnwritableError(f"the step {expr.name} is not a single one")
            return self.script.steps[expr.name]
        if expr.kind is Kind.NEGATE:
            return -self._whole(expr.args[0])
        left, right = map(self._whole, expr.args)
        return left + right if expr.kind is Kind.ADD else left - right

    def _at(self, expr: Expr) -> Code:
        """Write a function of the replaced variables, in which everything that depends on them is computed anew."""
        values = [self.code(arg) for arg in expr.args[1:]]
        values = [v if self.known[n].shape else v.number for n, v in zip(expr.names, values, strict=True)]
        kept = {
            name: code
            for name, code in self.known.items()
            if name in self.script.sizes or (self.script.formula(name) is None and self._is_variable(name))
        }
        replaced = {name: Code(_spelt(name), value.shape) for name, value in zip(expr.names, values, strict=True)}
        inside = _Block(self.script, [], kept | replaced)
        result = inside.code(expr.args[0])
        function = self._function("at", ", ".join(map(_spelt, expr.names)), inside, result)
        return Code(f"{function}({', '.join(value.text for value in values)})", result.shape)

    def _is_variable(self, name: str) -> bool:
        return " " not in name and name != self.script.state and not name.startswith(TANGENT)

    def _derivative(self, expr: Expr) -> Code:
        """Write the derivative along a direction as a function, and return its Jacobian or gradient."""
        formula, variable = expr.args[0], expr.args[1].name
        value, at = self.code(formula), self.name(variable)
        inside = _Tangents(self, variable, at.shape)
        moving = tangent(formula, inside.moves, inside.shape)
        result = Code(f"np.zeros({value.shape})", value.shape) if moving is None else inside.code(moving)
        function = self._function("along", _spelt(TANGENT + variable), inside, result)
        jacobian = f"jacobian({function}, {at.shape})"
        if expr.name == "jac":
            entries = [shape[0] * shape[1] if shape else 1 for shape in (value.shape, at.shape)]
            return Code(jacobian, (entries[0], entries[1]))
        if not at.shape:
            return Code(f"{jacobian}.item()", ())
        return Code(f'np.reshape({jacobian}, {at.shape}, order="F")', at.shape)


class _Tangents(_Block):
    """The body of a function of a direction: names have tangents besides their values."""

    def __init__(self, around: _Block, variable: str, shape: Shape) -> None:
        super().__init__(around.script, [], around.known)
        self.around = around
        self.variable = variable
        self.known[TANGENT + variable] = Code(_spelt(TANGENT + variable), shape)

    def moves(self, name: str) -> bool:
        """Whether a name depends on the variable."""
        return TANGENT + name in self.known or self.script.depends(name, self.variable)

    def name(self, name: str) -> Code:
        """Return the code of a name or of its tangent; what has no direction in it is assigned around this block."""
        if name in self.known:
            return self.known[name]
        if not name.startswith(TANGENT):
            self.known[name] = self.around.name(name)
            return self.known[name]
        plain = name.removeprefix(TANGENT)
        if plain == self.script.state:
            return self._state_tangent(name)
        formula = self.script.formula(plain)
        if formula is None:
            raise UnwritableError(f"{plain} has no derivative that can be written")
        moving = tangent(formula, self.moves, self.shape)
        if moving is None:  # as of a step function
            shape = self.name(plain).shape
            return self.assign(name, Code(f"np.zeros({shape})" if shape else "0.0", shape))
        return self.assign(name, self.code(moving))

    def _state_tangent(self, name: str) -> Code:
        """The tangent of the equilibrium: dZ = dF(Z), which is affine in dZ."""
        script = self.script
        assert script.formulas is not None
        self.name(script.formulas.state)
        inside = _Tangents(self, self.variable, self.known[TANGENT + self.variable].shape)
        inside.known[name] = Code(_spelt(name), script.state_shape)
        moving = tangent(script.formulas.map, inside.moves, inside.shape)
        assert moving is not None  # the state is in the map, or it would not move
        function = self._function("push", _spelt(name), inside, inside.code(moving))
        solution = f"linear_solution({function}, {script.state_shape})"
        return self.assign(name, Code(solution, script.state_shape))


def _spelt(name: str) -> str:
    """Return a name as Python spells it; one that Python or the script has a meaning for gets an underscore."""
    if name.startswith(TANGENT):
        return f"d_{_spelt(name.removeprefix(TANGENT))}"
    if name.endswith("]"):  # a member of a family
        family, _, index = name[:-1].partition("[")
        return f"{family}__{index.replace('-', 'm')}"
    if "__" in name:
        return f"own_{name}"
    taken = keyword.iskeyword(name) or name in _TAKEN or re.match(_WRITTEN, name)
    return f"{name}_" if taken else name
