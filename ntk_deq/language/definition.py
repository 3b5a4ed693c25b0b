"""Functions of arguments as they are defined: `phi(u)`, `map(z[n, N], W)`, `f[l](z) for l in 1..L`."""

from __future__ import annotations

from dataclasses import dataclass

from ntk_deq.errors import ExpressionError
from ntk_deq.language.families import index_size, split_for
from ntk_deq.language.parser import parse_head
from ntk_deq.language.tree import Expr
from ntk_deq.language.types import Reach, Size

OPEN = "_"
"""The argument that a partial application leaves open."""


@dataclass(frozen=True)
class Definition:
    """A function as it is defined.

    Attributes:
        name: Its name.
        head: Its name with its parameters, as written.
        parameters: Its parameters, names; one whose shape is stated has it as argument. None of a name for a function
            that has its argument already, as in `psi: compose(f, g)`.
        body: What it is.
        text: The same as written.
        member: The index of a member of a family of functions, or None.
        reach: What the letter of that index runs over, or None: it is one member.
        least, where: Its least value, and where it has that, for a member of a set of functions that has them.
    """

    name: str
    head: str
    parameters: tuple[Expr, ...]
    body: Expr
    text: str
    member: Size | None = None
    reach: Reach | None = None
    least: Expr | None = None
    where: Expr | None = None


class BrokenFunctionError(ExpressionError):
    """Something is wrong with the body of a function.

    Attributes:
        function: The function; the place of the error is one in its text.
    """

    def __init__(self, function: Definition, error: ExpressionError) -> None:
        super().__init__(error.message, error.span, error.hint)
        self.function = function


def is_head(key: str) -> bool:
    """Whether the key of a definition is that of a function."""
    return "(" in key


def definition(key: str, text: str, body: Expr) -> Definition:
    """Return the function that an entry defines.

    Args:
        key: Its head: `phi(u)`, `map(z[n, N], W)`, `f[l](z) for l in 1..L`.
        text: Its body as written.
        body: Its body.

    Raises:
        ExpressionError: The key is no head.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> found = definition("f[l](z) for l in 1..L", "relu(W[l]*z)", parse("relu(W[l]*z)"))
        >>> found.name, found.head, [parameter.name for parameter in found.parameters], found.reach.text
        ('f', 'f[l](z)', ['z'], 'l in 1..L')
    """
    text_of_head, reach = split_for(key)
    head = parse_head(text_of_head)
    parameters = head.args if head.name else head.args[1:]
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        span = (parameter.span.start, parameter.span.stop)
        if parameter.name == OPEN:
            raise ExpressionError(f"a parameter needs a name. Got `{OPEN}`.", span)
        if names.count(parameter.name) > 1:
            raise ExpressionError(f"two parameters are called `{parameter.name}`.", span)
    if head.name:
        if reach is not None:
            where = (head.span.start, head.span.stop)
            raise ExpressionError("a function for each member of a range is written f[l](z) for l in 1..L.", where)
        return Definition(head.name, text_of_head, parameters, body, text)
    member = head.args[0]
    index = index_size(member.args[0])
    if reach is not None and index != Size.letter(reach.letter):
        allowed = f"`{member.name}[{reach.letter}](...) for {reach.text}`"
        raise ExpressionError(f"the members of a range are written {allowed}. Got {key}.", (0, len(key)))
    return Definition(member.name, text_of_head, parameters, body, text, index, reach)
