"""Systems of papers as declarations, with values at which their maps contract."""

from __future__ import annotations

import torch

from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.systems import model_class

_ROLES = {"p": Role.PARAMETER, "h": Role.HYPERPARAMETER, "x": Role.INPUT, "y": Role.TARGET}


def system(name, variables, state, shape, image, contraction, **definitions):
    """A declaration; `variables` as "W:p:m,m X:x:d,N"."""
    found = []
    for part in variables.split():
        own, role, letters = part.split(":")
        found.append(Variable(own, tuple(letter for letter in letters.split(",") if letter), _ROLES[role], ""))
    sizes = tuple(dict.fromkeys(letter for variable in found for letter in variable.shape))
    return ModelSignature(
        name=name,
        title=name,
        sizes=sizes,
        variables=tuple(found),
        state=state,
        state_shape=tuple(shape),
        map=image,
        contraction=contraction,
        definitions={**definitions, "L": definitions.pop("L", "norm(yhat - y)^2/2")},
    )


SKIP = system("skip", "W:p:m,m U:p:m,d u:p:m X:x:d,N y:y:N", "Z", "mN", "relu(W*Z + U*X)", "norm(W)", yhat="Z'*u")
MONOTONE = system(
    "monotone",
    "A:p:m,m B:p:m,m U:p:m,d u:p:m a:h: X:x:d,N y:y:N",
    "Z",
    "mN",
    "relu(W*Z + U*X)",
    "norm(W)",
    W="(1 - a)*I(m) - A'*A + B - B'",
    yhat="Z'*u",
)
OPT_EQ = system(
    "opt-eq",
    "W:p:n,m U:p:n,d b:p:n v:p:m X:x:d,N y:y:N",
    "Z",
    "mN",
    "W'*relu(W*Z + U*X + b*ones(1, N))",
    "norm(W)^2",
    yhat="Z'*v",
)
SOFTMAX = system(
    "softmax",
    "W:p:m,m U:p:m,d v:p:m X:x:N,d y:y:N",
    "Z",
    "Nm",
    "softmax(W*Z' + U*X')'",
    "norm(W)/2",
    yhat="softmax(W*Z')'*v + Z*v",
)
FEED_FORWARD = system(
    "feed-forward",
    "W:p:m,d V:p:m,m u:p:m c:p:m X:x:N,d y:y:N",
    "",
    "",
    "",
    "",
    H="softplus(X*W' + ones(N)*c')",
    yhat="relu(H*V')*u + X*(W'*u)",
)
TWICE = system(
    "twice",
    "V:p:m,m U:p:m,d u:p:m X:x:N,d y:y:N",
    "",
    "",
    "",
    "",
    yhat="softplus(softplus(X*U'*V)*V)*u",
)
OUTPUTS = system(
    "outputs",
    "W:p:m,m U:p:m,d C:p:k,m e:p:k X:x:d,N y:y:k,N",
    "Z",
    "mN",
    "relu(W*Z + U*X)",
    "norm(W)",
    yhat="C*Z + e*ones(1, N)",
    L="fro(yhat - y)^2/2",
)
ROW_OUTPUTS = system(
    "row-outputs",
    "W:p:m,m C:p:m,k s:p: X:x:N,m y:y:N,k",
    "Z",
    "Nm",
    "softplus(s*Z*W + X)",
    "abs(s)*norm(W)",
    yhat="Z*C",
    L="fro(yhat - y)^2/2",
)
SHAPED = system(
    "shaped",
    "W:p:m,m P:p:m,m D:p:m s:p: U:p:m,d u:p:m X:x:d,N y:y:N",
    "Z",
    "mN",
    "relu(s*W*diag(D)*Z/(1 + norm(W)) + P^2*U*X/fro(P) + inv(I(m) + P'*P)*U*X)",
    "abs(s)*norm(W*diag(D))/(1 + norm(W))",
    yhat="Z'*(u/(1 + s^2))",
)
MASKED = system(
    "masked", "W:p:m,m U:p:m,d u:p:m M:h:m,m X:x:d,N y:y:N", "Z", "mN", "relu(hadamard(W, M)*Z + U*X)",
    "norm(hadamard(W, M))", yhat="Z'*u",
)  # fmt: skip

STRUCTURED = {
    own.name: own for own in (SKIP, MONOTONE, OPT_EQ, FEED_FORWARD, TWICE, OUTPUTS, ROW_OUTPUTS, SHAPED, SOFTMAX)
}
SIZES = {"N": 6, "d": 3, "m": 5, "n": 4, "k": 2}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(signature, sizes=SIZES, seed=0):
    """Return a model, inputs and targets; the map contracts by about a half."""
    values = {
        own.name: normal(*(sizes[letter] for letter in own.shape), seed=seed + 7 * place)
        for place, own in enumerate(signature.variables)
    }
    for own in signature.variables:
        if own.role is Role.HYPERPARAMETER and not own.shape:
            values[own.name] = torch.tensor(0.7, dtype=torch.float64)
        elif len(own.shape) == 2 and own.role is Role.PARAMETER:
            values[own.name] = values[own.name] * (0.5 / torch.linalg.matrix_norm(values[own.name], 2))
    inputs, targets = (signature.names(role)[0] for role in (Role.INPUT, Role.TARGET))
    return model_class(signature).from_variables(values), values[inputs], values[targets]


BENT = system(
    "bent", "W:p:m,m U:p:m,d u:p:m s:p: t:p: X:x:d,N y:y:N", "Z", "mN",
    "leaky_relu(shift(W*Z, t) + softthreshold(U*X, 1/4), s)", "max(1, abs(s))*norm(W)", yhat="huber(Z, 2)'*u",
)  # fmt: skip
