"""A counterexample as a Python script that needs NumPy alone: values, definitions, equilibrium, both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.environment import ModelFormulas, model_formulas
from ntk_deq.language.families import index_size
from ntk_deq.language.format import SUM
from ntk_deq.language.recursion import PATH_LENGTH, entries_in
from ntk_deq.language.tree import Expr, Kind, names_in
from ntk_deq.language.types import Sort
from ntk_deq.verify.printer import (
    TANGENT,
    Code,
    Printer,
    Shape,
    UnwritableError,
    comparisons,
    helpers,
    indented,
    plain,
    spelt,
)
from ntk_deq.verify.results import Witness
from ntk_deq.verify.tangents import tangent
from ntk_deq.verify.twins import twin_of

_DEEP = 200  # steps that may rest on each other in functions that call each other

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
    for left, relation, right in comparisons(formula.expr):
        sides = [block.code(side) for side in (left, right)]
        if any(side.shape for side in sides) and not all(side.shape for side in sides):
            sides = [side.number if side.shape == (1, 1) else side for side in sides]
        lines.append(f"compare({sides[0].text}, {relation!r}, {sides[1].text})")
    head = [f"# {plain(claim.id)}: {plain(witness.conclusion)}: {plain(formula.text)}"]
    head += [f"# {plain(witness.computed)}"] if witness.computed else []
    head.append("# NumPy rounds to float64: a margin below about 1e-15 of the sides cannot be seen.")
    body = "\n".join([*block.lines, "", *lines])
    imports = ["import math"] * ("math." in body) + ["from functools import cache"] * ("@cache" in body)
    imports = [*imports, "", "import numpy as np\n"] if imports else ["import numpy as np\n"]
    text = "\n".join([*head, *imports, *helpers(body), "", body]) + "\n"
    if len(text) > _LONGEST:
        raise UnwritableError("the script would be too long to read")
    return text


class _Script:
    """What all blocks of a script share: the claim's formulas on this instance, and the helpers that are used."""

    def __init__(self, claim: Claim, witness: Witness) -> None:
        setting = claim.setting_named(witness.setting)
        self.sizes: Mapping[str, int] = witness.sizes
        self.steps = {letter: int(step) for letter, step in witness.step.items()}
        self.recursions = claim.recursions
        stepwise = {entry.key for entry in entries_in(claim.let, self.recursions.rules.keys())}
        self.lets = {name: formula.expr for name, formula in claim.let.items() if name not in stepwise}
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
                new = set().union(*(_names(expr, self.state) for expr in self._written(waiting.pop()))) - found
                found |= new
                waiting += new
            self._reached[name] = frozenset(found)
        return self._reached[name]

    def _written(self, name: str) -> list[Expr]:
        """Return the formulas that give a name."""
        if name in self.recursions:
            starts = [expr for (start, _), expr in self.recursions.starts.items() if start == name]
            return [self.recursions.rules[name].expr, *starts]
        formula = self.formulas.map if self.formulas and name == self.state else self.formula(name)
        return [] if formula is None else [formula]

    def behind_steps(self, name: str) -> list[str]:
        """Return the recursions that the steps of one rest on, itself among them."""
        return [other for other in self.recursions.rules if self.depends(name, other)]

    def moves_with_steps(self, name: str) -> bool:
        """Whether a definition names steps."""
        return not self._behind(name).isdisjoint(self.recursions.rules)

    def step_shape(self, name: str) -> Shape:
        """Return the shape of what a recursion gives at a step."""
        type_ = self.recursions.rules[name].expr.type
        if name == PATH_LENGTH or (type_ is not None and type_.sort is not Sort.MATRIX):
            return ()
        assert type_ is not None  # but for that length every rule is typed
        return type_.rows.evaluate(self.sizes), type_.cols.evaluate(self.sizes)


def _names(expr: Expr, state: str | None) -> set[str]:
    """Return the names in an expression; the state is in steps and in calls of the model too."""
    nodes = list(expr.walk())
    called = any(node.kind is Kind.INDEX or node.name in ("next", "fixed_point") for node in nodes)
    return names_in(expr) | {state} if called and state is not None else names_in(expr)


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
        own = spelt(name)
        self.lines += f"{own} = {code.text}".split("\n")
        self.known[name] = Code(own, code.shape)
        return self.known[name]

    def size(self, name: str) -> int:
        """Return the value of a size letter or of a step."""
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
        self.lines += ["", f"def {name}({argument}):", *indented(inside.lines)]
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
            inside = _Block(script, [], free | {state: Code(spelt(state), script.state_shape)})
            result = inside.code(script.formulas.map)
            function = self._function("model_map", spelt(state), inside, result)
            self.known["model map"] = Code(function, ())
        return self.known["model map"].text

    def _step(self, expr: Expr) -> Code:
        if expr.name in self.script.recursions:
            return self._of_recursion(expr)
        if expr.name != self.script.state:
            raise UnwritableError(f"`{expr.name}` at a step is not written out")
        step = self._whole(expr.args[0])
        start = Code(f"np.zeros({self.script.state_shape})", self.script.state_shape)
        name = f"{expr.name} {step}"
        if name not in self.known:
            function, own = self._map(), f"{spelt(expr.name)}_at_{step}"
            self.lines += [f"{own} = {start.text}", f"for _ in range({step}):", f"    {own} = {function}({own})"]
            self.known[name] = Code(own, self.script.state_shape)
        return self.known[name]

    def _of_recursion(self, expr: Expr) -> Code:
        """Return a recursion at a step; functions of the step, of all that it rests on, are written first."""
        if f"{expr.name} at a step" not in self.known:
            self._write_steps(expr.name)
        step, far = self._at_step(expr.args[0])
        code = self.known[f"{expr.name} at a step"]
        if far > _DEEP:  # each value rests on the one before: Python allows no thousand of them
            self.lines += [
                f"for step in range({self.script.recursions.first(expr.name)}, {far}):",
                f"    {code.text}(step)",
            ]
        return Code(f"{code.text}({step})", code.shape)

    def _at_step(self, index: Expr) -> tuple[str, int]:
        """Return a step as Python, and as a number where it is one."""
        step = self._whole(index)
        return str(step), step

    def _write_steps(self, name: str) -> None:
        script, names = self.script, [n for n in self.script.behind_steps(name) if f"{n} at a step" not in self.known]
        self.known |= {f"{other} at a step": Code(spelt(other), script.step_shape(other)) for other in names}
        for other in names:
            inside, body = _Rule(self, other), list[str]()
            for start in sorted(step for given, step in script.recursions.starts if given == other):
                value = inside.code(script.recursions.starts[other, start])
                body += [f"if step == {start}:", *indented(inside.taken()), f"    return {value.text}"]
            value = inside.code(script.recursions.rules[other].expr)
            body += [*inside.taken(), f"return {value.text}"]
            self.lines += ["", "@cache", f"def {spelt(other)}(step):", *indented(body), ""]

    def _at(self, expr: Expr) -> Code:
        """Write a function of the replaced variables, in which everything that depends on them is computed anew."""
        values = [self.code(arg) for arg in expr.args[1:]]
        values = [v if self.known[n].shape else v.number for n, v in zip(expr.names, values, strict=True)]
        kept = {
            name: code
            for name, code in self.known.items()
            if name in self.script.sizes or (self.script.formula(name) is None and self._is_variable(name))
        }
        replaced = {name: Code(spelt(name), value.shape) for name, value in zip(expr.names, values, strict=True)}
        inside = _Block(self.script, [], kept | replaced)
        result = inside.code(expr.args[0])
        function = self._function("at", ", ".join(map(spelt, expr.names)), inside, result)
        return Code(f"{function}({', '.join(value.text for value in values)})", result.shape)

    def _is_variable(self, name: str) -> bool:
        return " " not in name and name != self.script.state and not name.startswith(TANGENT)

    def _derivative(self, expr: Expr) -> Code:
        """Write the derivative along a direction as a function, and return its Jacobian or gradient."""
        formula, variable = expr.args[0], expr.args[1].name
        if formula.kind is Kind.FUNCTION:
            variable = formula.names[0]
            self.assign(variable, self.code(expr.args[1]))
            formula = formula.args[0]
        value, at = self.code(formula), self.name(variable)
        inside = _Tangents(self, variable, at.shape)
        moving = tangent(formula, inside.moves, inside.shape)
        result = Code(f"np.zeros({value.shape})", value.shape) if moving is None else inside.code(moving)
        function = self._function("along", spelt(TANGENT + variable), inside, result)
        jacobian = f"jacobian({function}, {at.shape})"
        if expr.name == "jac":
            entries = [shape[0] * shape[1] if shape else 1 for shape in (value.shape, at.shape)]
            return Code(jacobian, (entries[0], entries[1]))
        if not at.shape:
            return Code(f"{jacobian}.item()", ())
        return Code(f'np.reshape({jacobian}, {at.shape}, order="F")', at.shape)


class _Rule(_Block):
    """The body of a function of the step that gives what a recursion says."""

    def __init__(self, around: _Block, name: str) -> None:
        super().__init__(around.script, [], around.known)
        self.around = around
        self._entry = around.script.recursions.rules[name].entry

    def taken(self) -> list[str]:
        """Return the lines so far, and begin anew: what they assigned is known in them alone."""
        lines, self.lines, self.known = self.lines, [], dict(self.around.known)
        return lines

    def name(self, name: str) -> Code:
        """Return the code of a name; what rests on no step is assigned around this function."""
        if name == self._entry.letter:
            return Code(_moved(-self._entry.shift), (), SUM)
        if name not in self.known and not self.script.moves_with_steps(name):
            self.known[name] = self.around.name(name)
        return super().name(name)

    def _at(self, expr: Expr) -> Code:
        if any(name in self.script.recursions or self.script.moves_with_steps(name) for name in names_in(expr)):
            raise UnwritableError("`at` of steps in the rule of a recursion is not written out")
        return super()._at(expr)

    def _at_step(self, index: Expr) -> tuple[str, int]:
        size, letter = index_size(index), self._entry.letter
        if not size.letters:
            return super()._at_step(index)
        return _moved(size.evaluate({letter: 0}) - self._entry.shift), 0


def _moved(by: int) -> str:
    return "step" if not by else f"step {'+' if by > 0 else '-'} {abs(by)}"


class _Tangents(_Block):
    """The body of a function of a direction: names have tangents besides their values."""

    def __init__(self, around: _Block, variable: str, shape: Shape) -> None:
        super().__init__(around.script, [], around.known)
        self.around = around
        self.variable = variable
        self.known[TANGENT + variable] = Code(spelt(TANGENT + variable), shape)

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
        inside.known[name] = Code(spelt(name), script.state_shape)
        moving = tangent(script.formulas.map, inside.moves, inside.shape)
        assert moving is not None  # the state is in the map, or it would not move
        function = self._function("push", spelt(name), inside, inside.code(moving))
        solution = f"linear_solution({function}, {script.state_shape})"
        return self.assign(name, Code(solution, script.state_shape))
