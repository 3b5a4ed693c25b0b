"""The models that claim files and the library know, by name. Needs no torch until an implementation is asked for."""

from __future__ import annotations

from ntk_deq.errors import ArgumentError, nearest_name
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


IMPLICIT_RELU = register_model(
    ModelSignature(
        name="implicit-relu",
        title="ReLU implicit network: Z = relu(gamma Z A + relu(X W)), yhat = Z b",
        sizes=("N", "d", "m"),
        variables=(
            Variable("W", ("d", "m"), Role.PARAMETER, "weights of the feature map"),
            Variable("A", ("m", "m"), Role.PARAMETER, "weights of the implicit layer"),
            Variable("b", ("m",), Role.PARAMETER, "weights of the output layer"),
            Variable("gamma", (), Role.HYPERPARAMETER, "fixed scale of the implicit layer", domain="(0, 1)"),
            Variable("X", ("N", "d"), Role.INPUT, "inputs, one sample a row"),
            Variable("y", ("N",), Role.TARGET, "targets"),
        ),
        state="Z",
        state_shape=("N", "m"),
        map="relu(gamma*Z*A + Phi)",
        contraction="gamma*norm(A)",
        definitions={
            "Phi": "relu(X*W)",
            "yhat": "Z*b",
            "L": "norm(yhat - y)^2/2",
        },
        implementation="ntk_deq.systems.implicit_relu:ImplicitReLU",
        reference="Gao and Gao (2022), arXiv:2205.07463, (1)-(4)",
    )
)

LINEAR_IMPLICIT = register_model(
    ModelSignature(
        name="linear-implicit",
        title="Linear implicit network: z = W z + U x for each sample, yhat = b'z",
        sizes=("N", "d", "m"),
        variables=(
            Variable("W", ("m", "m"), Role.PARAMETER, "weights of the implicit layer"),
            Variable("U", ("m", "d"), Role.PARAMETER, "weights of the input"),
            Variable("b", ("m",), Role.PARAMETER, "weights of the output layer"),
            Variable("X", ("N", "d"), Role.INPUT, "inputs, one sample a row"),
            Variable("y", ("N",), Role.TARGET, "targets"),
        ),
        state="Z",
        state_shape=("N", "m"),
        map="Z*W' + X*U'",
        contraction="norm(W)",
        definitions={
            "yhat": "Z*b",
            "L": "norm(yhat - y)^2/2",
        },
        implementation="ntk_deq.systems.linear_implicit:LinearImplicit",
        reference="the linear case of Kawaguchi (2021), arXiv:2102.07346",
    )
)
