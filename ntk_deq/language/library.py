"""The models that claim files and the library know, by name: those of `models.yaml`, and what is registered.

Needs no torch until an implementation is asked for.
"""

from __future__ import annotations

from importlib import resources

from ntk_deq.errors import ArgumentError, nearest_name
from ntk_deq.files.yaml import plain, read_text
from ntk_deq.language.declaration import ModelSignature, Role, Variable

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
