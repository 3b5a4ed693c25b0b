"""What somebody may have meant who wrote something else.

Names that people know from elsewhere: what to write here, where the nearest spelling would name another thing. Texts
that are no expression: remedies for what the parser trips over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from ntk_deq.errors import ExpressionError, nearest_name
from ntk_deq.language.functions import FUNCTIONS

_SPELLED = {
    "abs(x)": ("absolute", "fabs", "modulus", "magnitude"),
    "A' for a transpose": ("T", "transpose", "transp", "adjoint", "ctranspose"),
    "arccos(x)": ("acos", "arccosine"),
    "arctan(x)": ("atan", "arctangent"),
    "-dot(grad(f, W), grad(L, W)), a term for each parameter, for a derivative along the gradient flow of L": (
        "ddt", "d_dt", "dt", "Dt", "rate", "time_derivative", "dot_along", "material_derivative",
    ),
    "L, the loss that the model defines": ("loss", "cost", "risk", "objective", "training_loss", "empirical_risk"),
    "log(det(A))": ("logdet", "log_det", "slogdet"),
    "A{i..p, :} for rows, A{:, j..q} for columns": ("rows", "cols", "columns", "slice", "getrows"),
    "A*B for a matrix product": ("matmul", "mm", "mul", "multiply"),
    "cond(A)": ("condition", "condition_number"),
    "diag(v)": ("diagonal", "diagflat"),
    "dot(x, y)": ("inner", "vdot", "inner_product", "innerproduct"),
    "exp(x)": ("expo", "exponential"),
    "exp(x) - 1, log(1 + x)": ("expm1", "log1p"),
    "(exp(x) + exp(-x))/2": ("cosh",),
    "(exp(x) - exp(-x))/2": ("sinh",),
    "1 - erf(x)": ("erfc",),
    "(1 + erf(x/sqrt(2)))/2 for the normal distribution": ("Phi", "ncdf", "normcdf", "norm_cdf"),
    "fixed_point(Z)": ("fixedpoint", "equilibrium"),
    "fro(A)": ("frobenius", "frob", "norm_F", "normF", "norm_fro", "hs", "hilbert_schmidt"),
    "grad(f, x)": ("nabla", "gradient", "derivative", "diff"),
    "hadamard(A, B)": ("odot", "elementwise", "times", "schur"),
    "huber(x, delta)": ("huber_loss", "smooth_l1", "pseudo_huber"),
    "I(n)": ("eye", "identity", "Id", "Identity"),
    "inv(A)": ("inverse", "invert"),
    "jac(f, x)": ("jacobian", "Jacobian", "jacobi"),
    "kron(A, B)": ("otimes", "kronecker", "tensor"),
    "lambda_min(A) or lambda_max(A)": ("eig", "eigs", "eigh", "eigvals", "eigenvalues", "spectrum"),
    "leaky_relu(x, a)": ("leakyrelu", "lrelu", "prelu", "leaky"),
    "log(x)": ("ln",),
    "log(x)/log(2), log(x)/log(10)": ("log2", "log10"),
    "max(x, 0), or relu(A) of every entry": ("positive_part", "pos"),
    "max(min(x, b), a), or x - softthreshold(x, 1) of every entry": ("clip", "clamp", "hardtanh"),
    "pi/2 - arccos(x)": ("arcsin", "asin"),
    "[A; B] for one above the other": ("vstack", "vertcat"),
    "[A, B] for side by side": ("hstack", "horzcat", "hcat"),
    "[A, B; C, D] for a block matrix": ("block", "bmat", "block_matrix"),
    "A{i, j} for an entry, A{i, :} for a row": ("entry", "row", "col", "column", "submatrix", "getindex"),
    "blockdiag(A, B)": ("block_diag", "blkdiag", "dirsum", "direct_sum"),
    "khatri_rao(A, B)": ("khatrirao", "krao"),
    "kronsum(A, B)": ("kron_sum", "kronecker_sum", "oplus"),
    "nuclear(A)": ("nuc", "trace_norm", "schatten", "nuclear_norm"),
    "pinv(A)": ("pseudoinverse", "pseudo_inverse", "ginv"),
    "psd(A)": ("is_psd", "posdef", "positive_semidefinite", "succeq", "isposdef"),
    "rank(A)": ("rk", "matrix_rank"),
    "norm(A)": ("norm2", "opnorm", "operator_norm", "spectral_norm", "spectralnorm", "linalg_norm"),
    "rho(A)": ("spectral_radius", "spectralradius", "srad"),
    "sigma_min(A) or sigma_max(A)": ("svd", "svdvals", "singular_values", "svals"),
    "sigmoid(x)": ("logistic", "expit", "sigma_fn"),
    "sign(x)": ("sgn", "signum"),
    "sin(x)/cos(x)": ("tan", "tangent"),
    "slope(relu, x), by the function's name": ("dsigma", "prime", "activation_derivative", "deriv"),
    "softthreshold(x, t)": ("soft_threshold", "softshrink", "shrink", "soft", "prox_l1"),
    "softplus(x)": ("softrelu", "smooth_relu"),
    "sqrt(x), of a matrix that of every entry": ("root", "square_root"),
    "sqrtm(A)": ("matrix_sqrt", "msqrt", "sqrt_matrix", "matrix_root"),
    "step(x)": ("heaviside", "indicator", "unit_step"),
    "sum(A)/(n*m) with the sizes of A": ("mean", "average", "avg"),
    "trace(A)": ("tr", "Tr", "Trace"),
    "vec(A)": ("flatten", "ravel", "vectorize", "vectorise", "reshape"),
    "x*y' for the outer product": ("outer", "outer_product"),
    "x^2": ("square", "pow", "power"),
}  # fmt: skip
_NAMES = sorted(name for name, function in FUNCTIONS.items() if function.by_entries)
_ENTRYWISE = f"{', '.join(_NAMES[:-1])} and {_NAMES[-1]}"
_MISSING = {
    "such function; log(sum(exp(x))) is written so": (
        "logsumexp", "lse", "softmin", "log_softmax", "logsoftmax",
    ),
    f"activation of this name; its entrywise functions are {_ENTRYWISE}": (
        "gelu", "silu", "swish", "elu", "selu", "relu6", "hardsigmoid", "hardswish", "mish", "softsign", "celu",
    ),
    "such function; it has sin, cos, arccos, arctan, tanh and exp": (
        "cot", "sec", "csc", "atan2", "arctan2", "asinh", "acosh", "atanh", "arsinh", "arcosh", "artanh", "sinc",
        "coth", "sech",
    ),
    "special functions but erf": ("gamma_fn", "lgamma", "digamma", "beta_fn", "bessel", "zeta"),
    "proximal maps; that of t*abs(x) is softthreshold(x, t), a projection onto x >= 0 relu(x)": (
        "prox", "proximal", "proj", "projection", "moreau", "envelope",
    ),
    "suprema and infima; a claim speaks of all values": ("sup", "inf", "argsup", "supremum", "infimum"),
    "integrals; primitive(relu, x) is that of a function of each entry": ("integral", "integrate", "quad", "int"),
    "convolutions; a convolution is a product with a matrix": ("conv", "conv1d", "conv2d", "convolve"),
    "rounding": ("floor", "ceil", "round", "trunc", "mod", "rem", "frac"),
    "places of extremes": ("argmax", "argmin"),
    "products over entries; over a range write prod(f for l in 1..L)": ("prod", "product", "cumprod", "cumsum"),
    "functions of a matrix beyond powers and sqrtm": ("expm", "logm", "funm"),
    "second derivatives": ("hess", "hessian", "Hessian", "laplacian"),
    "probabilities; a claim speaks of all instances": ("expectation", "Pr", "prob", "probability", "var", "Var", "std"),
}  # fmt: skip
_HINTS = {name: f"write {spelling}" for spelling, names in _SPELLED.items() for name in names}
_HINTS |= {name: f"the language has no {what}" for what, names in _MISSING.items() for name in names}
_HINTS = {name: hint for name, hint in _HINTS.items() if name not in FUNCTIONS}

_CONSTANTS = {
    "e": "write exp(1), unless `e` is a name that is missing",
    "euler": "write exp(1)",
    "π": "write pi",
    "tau": "write 2*pi, unless `tau` is a name that is missing",
}
TRANSPOSES = frozenset({"T", "H", "top", "intercal"})
"""Exponents that stand for a transpose in print."""


def hint_for(name: str, allowed: Iterable[str], *, called: bool) -> str | None:
    """Return what to write in place of a name without a meaning: by what it means elsewhere, else by its spelling.

    Args:
        name: The name.
        allowed: Names that have a meaning where it stands.
        called: Whether it stands as a function, `name(...)`.

    Example:
        >>> hint_for("tan", ["tanh"], called=True), hint_for("rank", ["tanh"], called=False)
        ('write sin(x)/cos(x)', None)
        >>> hint_for("tr", ["trace"], called=True), hint_for("norn", ["norm"], called=True)
        ('write trace(A)', 'did you mean `norm`?')
        >>> hint_for("Ax", ["A", "x", "b"], called=False)
        'write A*x for a product'
    """
    allowed = sorted(other for other in allowed if other.isidentifier())
    if not called:
        for cut in range(1, len(name)):
            if name[:cut] in allowed and name[cut:] in allowed and name[:cut] != name[cut:]:
                return f"write {name[:cut]}*{name[cut:]} for a product"
    near = nearest_name(name, allowed)
    # A name that differs in case alone is a slip, whatever it means elsewhere.
    hint = (_HINTS if called else _CONSTANTS).get(name)
    if hint is not None and not (near is not None and near.casefold() == name.casefold()):
        return hint
    return f"did you mean `{near}`?" if near else None


_REMEDIES = {
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "·": "write * for a product",
    "×": "write * for a product",
    "⊗": "write kron(A, B)",
    "⊙": "write hadamard(A, B)",
    "⊤": "write ' for a transpose",
    ".": "write A' for a transpose, hadamard(A, B) for a product of entries",
    "’": "write ' for a transpose",
    "−": "write - (a hyphen) for minus",
    "√": "write sqrt(x)",
    "|": "write norm(x) for a norm, abs(x) for an absolute value, `or` between conditions",
    "‖": "write norm(x) for the spectral norm, fro(x) for the Frobenius norm",
    "&": "write `and`",
    "!": "write `not`, or != for `differs from`",
    "⪰": "write psd(A - B) for the order of symmetric matrices",
    "≽": "write psd(A - B) for the order of symmetric matrices",
    "≻": "write lambda_sym(A - B) > 0 for the strict order of symmetric matrices",
    "⪯": "write psd(B - A) for the order of symmetric matrices",
    "≼": "write psd(B - A) for the order of symmetric matrices",
    "≺": "write lambda_sym(B - A) > 0 for the strict order of symmetric matrices",
    "⊕": "write kronsum(A, B) for a Kronecker sum, blockdiag(A, B) for a direct sum",
    "∇": "write grad(f, x)",
    "∧": "write `and`",
    "∨": "write `or`",
    "∀": "write the quantifier at the end: ... for all k",
    "%": "the language has no remainder and no comments",
    "#": "the language has no comments",
    "@": "write * for a matrix product",
}

_TOKEN_REMEDIES = {
    "TIMES": "write ^ for a power",
    "EQUALS": "write == for `equals`",
    "LSQB": "only a name can carry a step, as in Z[k]: name this under `let`; brackets are ( )",
    "NAME": "write * for a product",
    "NUMBER": "write * for a product",
    "LPAR": "write * for a product",
    "SEMICOLON": "an entry is missing, or this `;` stands outside of [ ]",
    "COLON": "`:` stands for all rows or all columns, as in A{i, :}",
    "LBRACE": "braces stand behind a matrix, as in A{i, j}; brackets are ( )",
    "FOR": "a quantifier stands once, at the end of a statement or of a bracket",
}


def unexpected_character(text: str, error: UnexpectedCharacters) -> ExpressionError:
    """Return the error of a character that no word of the language has."""
    start = error.pos_in_stream or 0
    character = text[start]
    shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
    return ExpressionError(f"unexpected character {shown}.", (start, start + 1), _REMEDIES.get(character))


def unexpected_token(text: str, error: UnexpectedToken) -> ExpressionError:
    """Return the error of a word in a place where it cannot stand."""
    token = error.token
    if token.type == "$END":
        stop = len(text.rstrip())
        missing = _unclosed(text)
        return ExpressionError("the expression ends too early.", (max(stop - 1, 0), stop), missing)
    start = token.start_pos if token.start_pos is not None else 0
    hint = _TOKEN_REMEDIES.get(token.type)
    if token.type == "TIMES" and not text[:start].endswith("*"):
        hint = None
    if token.type in ("NAME", "NUMBER", "LPAR") and not {"TIMES", "SLASH"} & set(error.accepts or error.expected):
        hint = None
    if token.type == "LPAR" and text[:start].rstrip().endswith("'"):
        hint = "a prime is a transpose; the derivative of a function of each entry is slope(NAME, x)"
    if str(token) in (">", "<") and text[:start].rstrip().endswith(str(token)):
        hint = "write psd(A - B) for the order of symmetric matrices"
    inside = token.type == "COMMA" and re.search(r"\w\[[^\[\]]*$", text[:start])
    if inside or re.search(r"\w\[[^\[\]]*,[^\[\]]*\]\s*$", text[:start]):
        hint = "write A{i, j} for an entry; Z[k] is a value at a step, W[l][k] that of a member of a family"
    if token.type == "NAME" and text[:start].rstrip().endswith("]"):
        hint = "write * for a product"
    return ExpressionError(f"unexpected {str(token)!r}.", (start, start + len(token)), hint)


def _unclosed(text: str) -> str | None:
    """Say which bracket lacks its partner, if one does."""
    stack: list[str] = []
    for bracket in re.findall(r"[()\[\]{}]", text):
        if bracket in "([{":
            stack.append(bracket)
        elif stack:
            stack.pop()
    if not stack:
        return None
    return f"close the bracket with {_CLOSING[stack[-1]]}"


_CLOSING = {"(": ")", "[": "]", "{": "}"}
