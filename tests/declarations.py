"""Models that tests declare: formulas alone, no class."""

from ntk_deq.language.declaration import ModelSignature, Role, Variable

BIASED = ModelSignature(
    name="biased",
    title="A ReLU network with a bias: Z = relu(Z A + X W + 1 c')",
    sizes=("N", "d", "m"),
    variables=(
        Variable("A", ("m", "m"), Role.PARAMETER, "weights of the implicit layer"),
        Variable("W", ("d", "m"), Role.PARAMETER, "weights of the input"),
        Variable("c", ("m",), Role.PARAMETER, "bias"),
        Variable("u", ("m",), Role.PARAMETER, "weights of the output layer"),
        Variable("X", ("N", "d"), Role.INPUT, "inputs, one sample a row"),
        Variable("y", ("N",), Role.TARGET, "targets"),
    ),
    state="Z",
    state_shape=("N", "m"),
    map="relu(Z*A + X*W + ones(N)*c')",
    contraction="norm(A)",
    definitions={"yhat": "Z*u", "L": "norm(yhat - y)^2/2"},
)
