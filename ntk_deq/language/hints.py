"""What somebody may have meant who wrote something else.

Names that people know from elsewhere: what to write here, where the nearest spelling would name another thing. Texts
that are no expression: remedies for what the parser trips over. Problems in a claim file, worded and placed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from ntk_deq.errors import ExpressionError, Position, Problem, nearest_name
from ntk_deq.files.yaml import Node, Scalar
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
    "lambda_min(A) or lambda_max(A)": (
        "eig", "eigs", "eigh", "eigvals", "eigenvalues", "spectrum", "spec",
        "lambda_1", "lambda_n", "min_eig", "max_eig",
    ),
    "leaky_relu(x, a)": ("leakyrelu", "lrelu", "prelu", "leaky"),
    "log(x)": ("ln",),
    "log(x)/log(2), log(x)/log(10)": ("log2", "log10"),
    "max(x, 0), or relu(A) of every entry": ("positive_part", "pos"),
    "max(min(x, b), a), or x - softthreshold(x, 1) of every entry": ("clip", "clamp", "hardtanh"),
    "pi/2 - arccos(x)": ("arcsin", "asin"),
    "[A; B] for one above the other": ("vstack", "vertcat"),
    "[A, B] for side by side": ("hstack", "horzcat", "hcat"),
    "[A, B] for side by side, [A; B] for one above the other": ("concat", "cat", "stack", "concatenate", "append"),
    "ones(n)*x' for a row again and again, kron(ones(n), A) for a matrix": ("repeat", "tile", "broadcast", "repmat"),
    "norm(x - y) for vectors, fro(A - B) for matrices": ("dist", "distance", "d2"),
    "norm1(x)": ("norm_1", "l1", "l1_norm", "onenorm"),
    "norminf(x)": ("norm_inf", "linf", "maxnorm", "norm_max", "sup_norm"),
    "x/norm(x)": ("normalize", "normalise", "normalized", "unit"),
    "dot(x, y)/(norm(x)*norm(y)), of which arccos is the angle": ("cosine", "cos_sim", "cosine_similarity", "angle"),
    "A*ones(m) for sums of rows, A'*ones(n) for sums of columns": ("rowsum", "rowsums", "colsum", "colsums", "row_sum"),
    "A*ones(m)/m for means of rows, A'*ones(n)/n for means of columns": ("rowmean", "colmean", "row_mean", "col_mean"),
    "A'*A/n - (A'*ones(n)/n)*(A'*ones(n)/n)' for the covariance of n rows": ("cov", "covariance"),
    "rank(A) for the size of the range, A*pinv(A)*x == x for `x lies in it`": (
        "range", "image", "im", "colspan", "span",
    ),
    "A*x == 0 for `x lies in the kernel`, n - rank(A) for its size": (
        "ker", "null", "nullspace", "null_space", "kernel",
    ),
    "the letter of the size": ("dim", "size", "length", "len", "numel", "shape"),
    "(A + A')/2": ("sym", "symmetric_part", "herm"),
    "(A - A')/2": ("skew", "skew_part", "antisym"),
    "A*B - B*A": ("commutator", "bracket", "comm"),
    "jac(grad(f, x), x)": ("hess", "hessian", "Hessian", "Hess"),
    "trace(jac(f, x))": ("divergence", "div", "laplacian"),
    "trace(jac(grad(f, x), x)) for a Laplacian": ("Laplacian", "laplace"),
    "x'*A*x": ("quadform", "quadratic_form"),
    "supremum(f, x) for a function f of an argument, max(A) for the largest entry": ("sup", "maximize"),
    "infimum(f, x) for a function f of an argument, min(A) for the smallest entry": ("inf", "minimize"),
    "prox(f, x, mu) for a function f of an argument; a projection onto x >= 0 is relu(x)": (
        "proximal", "proj", "projection",
    ),
    "moreau(f, x, mu) for a function f of an argument": ("envelope", "moreau_envelope"),
    "conjugate(f, y) for a function f of an argument": ("legendre", "fenchel", "conj"),
    "-log(sum(exp(-x)))": ("softmin",),
    "log(sum(exp(x)))": ("logsumexp", "lse"),
    "log(softmax(x))": ("log_softmax", "logsoftmax"),
    "norm(yhat - y)^2/N": ("mse", "MSE", "mean_squared_error"),
    "-dot(y, log(p))": ("cross_entropy", "crossentropy", "nll", "xent"),
    "-dot(p, log(p))": ("entropy",),
    "dot(p, log(p) - log(q))": ("KL", "kl", "kl_divergence", "relative_entropy"),
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
    "sigma_min(A) or sigma_max(A)": (
        "svd", "svdvals", "singular_values", "svals", "sigma_1", "sigma_n", "s_min", "s_max",
    ),
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
    f"activation of this name; its entrywise functions are {_ENTRYWISE}": (
        "gelu", "silu", "swish", "elu", "selu", "relu6", "hardsigmoid", "hardswish", "mish", "softsign", "celu",
    ),
    "such function; it has sin, cos, arccos, arctan, tanh and exp": (
        "cot", "sec", "csc", "atan2", "arctan2", "asinh", "acosh", "atanh", "arsinh", "arcosh", "artanh", "sinc",
        "coth", "sech",
    ),
    "special functions but erf": ("gamma_fn", "lgamma", "digamma", "beta_fn", "bessel", "zeta"),
    "integrals; primitive(relu, x) is that of a function of each entry": ("integral", "integrate", "quad", "int"),
    "convolutions; a convolution is a product with a matrix": ("conv", "conv1d", "conv2d", "convolve"),
    "rounding": ("floor", "ceil", "round", "trunc", "mod", "rem", "frac"),
    "places of largest values; argmin(f, x) is that of the smallest value of a function f of an argument": (
        "argmax", "argsup", "arginf",
    ),
    "matrix made of a vector; entries are written out, as in [x{1}, x{2}; x{3}, x{4}]": (
        "unvec", "mat", "devec", "toeplitz", "circ", "circulant", "hankel", "vander",
    ),
    "triangular parts": ("tril", "triu", "lower", "upper"),
    "medians, quantiles and orders of entries": (
        "median", "quantile", "percentile", "sort", "sorted", "argsort", "topk",
    ),
    "factorials; prod(k for k in 1..5) is one": ("factorial", "fact", "binom", "choose", "nchoosek"),
    "count of entries; sum(abs(sign(x))) is that of those that are not zero": (
        "card", "nnz", "count", "supp", "norm0", "l0",
    ),
    "limits; write `... for all k` or a bound with its rate": ("lim", "limit", "limsup", "liminf", "o", "O", "Theta"),
    "Lipschitz constants of maps; of a linear one it is norm(A)": ("lip", "Lip", "lipschitz"),
    "rotation of a field": ("curl", "rot"),
    "products over entries; over a range write prod(f for l in 1..L)": ("prod", "product", "cumprod", "cumsum"),
    "functions of a matrix beyond powers and sqrtm": ("expm", "logm", "funm"),
    "probabilities; a claim speaks of all instances": (
        "E", "P", "expectation", "Pr", "prob", "probability", "var", "Var", "std",
    ),
}  # fmt: skip
_HINTS = {name: f"write {spelling}" for spelling, names in _SPELLED.items() for name in names}
_HINTS |= {name: f"the language has no {what}" for what, names in _MISSING.items() for name in names}
_HINTS = {name: hint for name, hint in _HINTS.items() if name not in FUNCTIONS}

_CONSTANTS = {
    "e": "write exp(1), unless `e` is a name that is missing",
    "euler": "write exp(1)",
    "π": "write pi",
    "inf": "an infinity stands in intervals alone, as in (0, inf)",
    "infinity": "an infinity stands in intervals alone, as in (0, inf)",
    "nabla": "write grad(f, x)",
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
        >>> hint_for("A_ii", ["A", "x", "b"], called=False)
        'write A{i, j} for an entry, A{i} of a vector'
    """
    allowed = sorted(other for other in allowed if other.isidentifier())
    if not called:
        for cut in range(1, len(name)):
            if name[:cut] in allowed and name[cut:] in allowed and name[:cut] != name[cut:]:
                return f"write {name[:cut]}*{name[cut:]} for a product"
        head, _, index = name.rpartition("_")
        if head in allowed and (index.isdecimal() or len(index) <= 2):
            return f"write {head}{{i, j}} for an entry, {head}{{i}} of a vector"
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
    "∈": "write what it means: A*x == 0 for a kernel, 0 <= x for an orthant; a domain stands under `domain` or `given`",
    "∞": "an infinity stands in intervals alone, as in (0, inf)",
    "∑": "write sum(f for l in 1..L)",
    "Σ": "write sum(f for l in 1..L)",
    "∏": "write prod(f for l in 1..L)",
    "∂": "write jac(f, x) or grad(f, x)",
    "∘": "write hadamard(A, B) for a product of entries, f(g(x)) for functions",
    "⟨": "write dot(x, y)",
    "\\": "the language is no LaTeX: write lambda, A', norm(A)",
    "²": "write ^2",
    "ᵀ": "write ' for a transpose",
    "λ": "write lambda_min(A), or a name in plain letters",
}

_TOKEN_REMEDIES = {
    "*": "write ^ for a power",
    "=": "write == for `equals`",
    "[": "only a name can carry a step, as in Z[k]: name this under `let`; brackets are ( )",
    "NAME": "write * for a product",
    "NUMBER": "write * for a product",
    "(": "write * for a product",
    ";": "an entry is missing, or this `;` stands outside of [ ]",
    ":": "`:` stands for all rows or all columns, as in A{i, :}",
    "{": "braces stand behind a matrix, as in A{i, j}; brackets are ( )",
    "for": "a quantifier stands once, at the end of a statement or of a bracket",
}


_OF_OTHERS = {
    "=>": "write >=; for an implication, `not P or Q`",
    "=<": "write <=",
    "<>": "write !=",
    "implies": "write `not P or Q` for an implication",
    "then": "write `not P or Q` for an implication",
}
"""Words and signs of other languages, by what stands at and around the place."""


def unexpected_character(text: str, start: int) -> ExpressionError:
    """Return the error of a character that no word of the language has."""
    character = text[start]
    shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
    hint = _REMEDIES.get(character)
    if character == "." and re.search(r"\d\.$|\.\d", text[max(start - 1, 0) : start + 2]):
        hint = "write digits on both sides of one point, as in 0.5"
    return ExpressionError(f"unexpected character {shown}.", (start, start + 1), hint)


def unexpected_token(text: str, kind: str, start: int, stop: int, *, behind: bool) -> ExpressionError:
    """Return the error of a word in a place where it cannot stand.

    Args:
        text: The whole text.
        kind: NAME, NUMBER, MEMBER, END, else the sign or the word itself.
        start: Where it starts.
        stop: Where it ends.
        behind: Whether it stands behind something that could be a factor.
    """
    word, before = text[start:stop], text[:start].rstrip()
    if kind == "END":
        stop = len(text.rstrip())
        return ExpressionError("the expression ends too early.", (max(stop - 1, 0), stop), _unclosed(text))
    hint = _TOKEN_REMEDIES.get(kind)
    if kind == "*" and not text[:start].endswith("*"):
        hint = None
    if kind in ("NAME", "NUMBER", "(") and not behind:
        hint = None
    if kind == "(" and before.endswith("'"):
        hint = "a prime is a transpose; the derivative of a function of each entry is slope(NAME, x)"
    if word == "<" and not before:
        hint = "write dot(x, y) for an inner product"
    if kind == "{" and before.endswith("^"):
        hint = "an exponent stands in round brackets or in none: A^(-1), A^k"
    if word in (">", "<") and re.search(r"\{[^{}]*$", text[:start]):
        hint = "write step(x) for an indicator of x > 0; braces take entries, A{i, j}"
    if word in (">", "<") and before.endswith(word):
        hint = "write psd(A - B) for the order of symmetric matrices"
    inside = kind == "," and re.search(r"\w\[[^\[\]]*$", text[:start])
    if inside or re.search(r"\w\[[^\[\]]*,[^\[\]]*\]\s*$", text[:start]):
        hint = "write A{i, j} for an entry; Z[k] is a value at a step, W[l][k] that of a member of a family"
    if kind == "NAME" and before.endswith("]"):
        hint = "write * for a product"
    for spelt in (text[start : stop + 1], text[max(start - 1, 0) : stop], word):
        hint = _OF_OTHERS.get(spelt, hint)
    return ExpressionError(f"unexpected {word!r}.", (start, stop), hint)


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


_CANDIDATES = 1000  # a spelling is compared with at most so many names, since each comparison takes microseconds
SHOWN = 60  # characters of a value that a message quotes
_YAML_BOOLEANS = frozenset({"yes", "no", "on", "off"})


def did_you_mean(name: str, allowed: Iterable[str]) -> str | None:
    """Return the hint that names the nearest allowed spelling, or None.

    Example:
        >>> did_you_mean("asume", ["assume", "conclude"])
        'did you mean `assume`?'
    """
    near = nearest_name(name[:SHOWN], islice(allowed, _CANDIDATES))
    return f"did you mean `{near}`?" if near else None


def shown(value: object) -> str:
    """Return a value as a message quotes it; words that YAML 1.1 calls booleans are named as what they are here.

    Example:
        >>> shown("yes"), shown(3), shown(None)
        ("the word 'yes' (only true and false are booleans)", '3', 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = repr(value if len(value) <= SHOWN else value[:SHOWN] + "...")
        return f"the word {quoted} (only true and false are booleans)" if is_yaml_boolean(value) else quoted
    if isinstance(value, list | tuple | dict):
        return f"{'a' if value else 'an empty'} {'mapping' if isinstance(value, dict) else 'list'}"
    return str(value)


def is_yaml_boolean(text: str) -> bool:
    """Return whether YAML 1.1 would read a word as a boolean that is neither `true` nor `false`."""
    return text.strip().lower() in _YAML_BOOLEANS


def expression_text(node: Node) -> str:
    """Return the text of an expression or a domain as written; a list [0, 1] gives `[0, 1]`."""
    if isinstance(node, Scalar):
        return node.text
    return "[" + ", ".join(expression_text(item) for item in getattr(node, "items", ())) + "]"


def expression_problem(node: Node, error: ExpressionError, where: str, claim: str | None = None) -> Problem:
    """Return the problem that an expression's error makes at its place in the file.

    Args:
        node: The expression.
        error: What is wrong with it.
        where: What the expression is, for the message: `assume.well-posed`.
        claim: Id of the claim.
    """
    message = f"`{where}`: {error.message}"
    text = expression_text(node)
    if not isinstance(node, Scalar):
        return Problem(node.position, message, claim, text, error.span, error.hint)
    if is_yaml_boolean(text):
        message = f"`{where}`: a number or an expression is needed. Got {shown(text.strip())}."
        error = ExpressionError(message, error.span)
    return Problem(node.position_of(error.span[0]), message, claim, text, error.span, error.hint)


def scalar_position(node: Node, offset: int) -> Position:
    """Return the place of a character of an expression."""
    return node.position_of(offset) if isinstance(node, Scalar) else node.position
