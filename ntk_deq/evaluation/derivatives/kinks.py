"""Which kinks a derivative meets: zeros of an argument of relu, abs or step on the way from the variable to the value.

Two things make a zero harmless. The argument's entry may not *move*: near the instance it is the same number whatever
the variable does, so that relu passes it on as a constant. Or what comes out may not *matter*: it meets only factors
that are zero and do not move. Both are decided entry by entry, from zeros that are certain; where nothing special is
known of a function, every entry of its value moves with every entry of its arguments.

An equilibrium needs a word. Let F be its map and S a set of entries of the state such that the entries S of F(Z) do not
move as long as the entries S of Z do not. For variables near by, the map of the other entries, with the entries S as
they are, has a solution near by too (what makes an equilibrium exist makes that one exist), and the two parts together
are a fixed point of F: the equilibrium, of which the entries S have not moved. The largest such set is found from
below: entries move that are shown to.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import torch
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.evaluation.derivatives import EQUILIBRIUM, MINIMISER, STATE, Node, Signs, number_place, reachable, signs_of
from ntk_deq.evaluation.functions import whole
from ntk_deq.evaluation.functions.twins import FUNCTIONS
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functions import FUNCTIONS as RECORDS
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Degree, Entrywise, Kink
from ntk_deq.language.tree import Kind

_LARGEST = 2**20
"""Entries of a node up to which zeros are followed; beyond, every zero of an argument counts."""

_AT_ZERO = (Kink.CORNER, Kink.JUMP)
_SAME_PLACES = (str(Kind.NEGATE), str(Kind.ADD), str(Kind.SUBTRACT))


class Kinks:
    """The kinks of one formula for one variable.

    Args:
        root: What is differentiated.
        target: The variable.
        states: The state in the map of each equilibrium, by the equilibrium's number.
        several: Numbers of the states of equilibria besides which there may be others.
    """

    def __init__(
        self, root: Node, target: Node, states: Mapping[int, Node], several: Container[int] = frozenset()
    ) -> None:
        self._root, self._target = root, target
        self._nodes = reachable([root])[::-1]
        self._several = several
        self._states = {states[node.number].number: node for node in self._nodes if node.operation == EQUILIBRIUM}
        changing = {target.number}
        changing |= {number for number, node in self._states.items() if target.number in node.depends}
        self._active = {node.number for node in self._nodes if node.depends & changing}
        self._resting: set[int] = set()  # what is computed from a state
        for node in self._nodes:
            inside = node.operation != EQUILIBRIUM and any(arg.number in self._resting for arg in node.args)
            if inside or node.number in self._states:
                self._resting.add(node.number)
        self._signs: dict[int, Signs] = {}
        self._moves: dict[int, Tensor] = {}
        self._alive: dict[int, Tensor] = {}
        self._matters: dict[int, Tensor] = {}

    def worst(self) -> bool | None:
        """Return True where a kink is met for certain, False where one may be, None where none is."""
        unsure = [node for node in self._kinked() if bool(self._unsure(node).any())]
        if not unsure:
            return None
        if all(node.shape[0] * node.shape[1] <= _LARGEST for node in self._nodes):
            self._follow()
            self._look_back()
        met = [(self._unsure(node) & self._met(node), self._sign(node.args[0]).zero) for node in unsure]
        if not any(bool(places.any()) for places, _ in met):
            return None
        return any(bool((places & zero).any()) for places, zero in met)

    def _kinked(self) -> list[Node]:
        return [n for n in self._nodes if kink_of(n.operation) in _AT_ZERO and n.args[0].number in self._active]

    def _sign(self, node: Node) -> Signs:
        if node.number not in self._signs:
            self._signs[node.number] = signs_of(node)
        return self._signs[node.number]

    def _unsure(self, node: Node) -> Tensor:
        signs = self._sign(node.args[0])
        return ~(signs.above | signs.below)

    def _met(self, node: Node) -> Tensor:
        """Return where a zero of the argument of a function with a corner or a jump would be a kink of the value."""
        if not self._moves:
            return torch.ones(node.shape, dtype=torch.bool)
        moving = self._moves[node.args[0].number]
        # What jumps is a constant to those who ask what matters, so that its jumps all count.
        return moving if kink_of(node.operation) is Kink.JUMP else moving & self._matters[node.number]

    def _zeros(self) -> dict[int, Tensor]:
        """Return, for each state, the entries that are not shown to be zero.

        Where every state that is zero on a set of entries has an image that is so too, the equilibrium is zero there,
        if it is the only one. What is asked of the image must hold at all those states, so that no value at the
        equilibrium is looked at.
        """
        nowhere = {number: torch.zeros(node.shape, dtype=torch.bool) for number, node in self._states.items()}
        images = {number: node.args[0].number for number, node in self._states.items()}
        alive = {number: nowhere[number] | (number in self._several) for number in nowhere}
        active, self._active = self._active, set()
        while True:
            for node in self._nodes:
                self._step(node, nowhere, alive, everywhere=True)
            more = {number: alive[number] | self._alive[image] for number, image in images.items()}
            if all(torch.equal(more[number], alive[number]) for number in images):
                self._active = active
                return {number: alive[number] & ~self._sign(node).zero for number, node in self._states.items()}
            alive = more

    def _follow(self) -> None:
        """Find what moves, and what is or may become other than zero, from the variable on."""
        alive = self._zeros()
        images = {number: node.args[0].number for number, node in self._states.items()}
        moving = {number: torch.zeros(node.shape, dtype=torch.bool) for number, node in self._states.items()}
        while True:
            for node in self._nodes:
                self._step(node, moving, alive)
            more = {number: moving[number] | self._moves[image] for number, image in images.items()}
            # The equilibrium is its own image: what is zero in one is so in the other.
            less = {number: alive[number] & (self._alive[image] | moving[number]) for number, image in images.items()}
            if all(torch.equal(more[k], moving[k]) and torch.equal(less[k], alive[k]) for k in images):
                return
            moving, alive = more, less

    def _step(
        self, node: Node, moving: Mapping[int, Tensor], alive: Mapping[int, Tensor], *, everywhere: bool = False
    ) -> None:
        """Find what moves of a node and what is alive, at the equilibrium or at every state that is zero as said."""
        shape, certain = node.shape, not (everywhere and node.number in self._resting)
        if node.operation == STATE and node.number not in moving:  # a minimiser, held fixed
            moves, lives = torch.zeros(shape, dtype=torch.bool), torch.ones(shape, dtype=torch.bool)
        elif node.operation == MINIMISER:
            moves = lives = torch.ones(shape, dtype=torch.bool)
        elif node.operation == STATE:
            moves, lives = moving[node.number], alive[node.number]
        elif node is self._target:
            moves = lives = torch.ones(shape, dtype=torch.bool)
        elif not node.args:
            moves, lives = torch.zeros(shape, dtype=torch.bool), torch.ones(shape, dtype=torch.bool)
        else:
            args = [(self._moves[arg.number], self._alive[arg.number]) for arg in node.args]
            moves, lives = self._passed(node, args, certain=certain)
        if node.number not in self._active:
            moves = torch.zeros(shape, dtype=torch.bool)
        self._moves[node.number] = moves
        self._alive[node.number] = moves | (lives & ~self._sign(node).zero if certain and _is_plain(node) else lives)

    def _passed(self, node: Node, args: list[tuple[Tensor, Tensor]], *, certain: bool) -> tuple[Tensor, Tensor]:
        """Return where a node's value moves and where it may be other than zero, from the same of its arguments."""
        operation = node.operation
        (moves, lives), *others = args
        if operation in _SAME_PLACES and all(m.shape == moves.shape for m, _ in others):
            for other_moves, other_lives in others:
                moves, lives = moves | other_moves, lives | other_lives
            return moves, lives
        if operation == EQUILIBRIUM:
            return moves, lives
        facts = entrywise_of(operation)
        if facts is not None:
            return self._of_entries(node, facts, moves, lives, certain=certain)
        if operation == str(Kind.DIVIDE):
            return (lives if bool(others[0][0].any()) else moves), lives
        if operation == str(Kind.TRANSPOSE):
            return moves.mT, lives.mT
        degree = _degree(operation)
        if degree is Degree.LINEAR:
            return _sums(node, [m for m, _ in args]), _sums(node, [a for _, a in args])
        if degree is Degree.BILINEAR:
            (other_moves, other_lives) = others[0]
            moved = _sums(node, [moves, other_lives]) | _sums(node, [lives, other_moves])
            return moved, _sums(node, [lives, other_lives])
        anywhere = any(bool(m.any()) for m, _ in args)
        return torch.full(node.shape, anywhere), torch.ones(node.shape, dtype=torch.bool)

    def _of_entries(
        self, node: Node, facts: Entrywise, moves: Tensor, lives: Tensor, *, certain: bool
    ) -> tuple[Tensor, Tensor]:
        """Return where a function of each entry moves and where it may be other than zero."""
        if facts.kink is Kink.JUMP:
            return torch.zeros_like(moves), torch.ones_like(lives)
        if facts.sides is None:
            return moves, torch.ones_like(lives)
        if 0 not in facts.sides:
            return moves, lives
        signs = self._sign(node.args[0])
        flat = (signs.below if facts.sides[0] == 0 else signs.above) & certain
        return moves & ~flat, lives & ~flat

    def _look_back(self) -> None:
        """Find which entries the value moves with, from the value back."""
        self._matters = {node.number: torch.zeros(node.shape, dtype=torch.bool) for node in self._nodes}
        self._matters[self._root.number] = self._moves[self._root.number].clone()
        changed = True
        while changed:
            changed = False
            for node in self._nodes[::-1]:
                wanted = self._matters[node.number]
                if not bool(wanted.any()):
                    continue
                if node.number in self._states:  # an entry of the state matters as one of the equilibrium
                    changed |= self._want(self._states[node.number], wanted)
                for place, arg in enumerate(node.args):
                    changed |= self._want(arg, self._share(node, wanted, place))

    def _want(self, node: Node, places: Tensor) -> bool:
        before = self._matters[node.number]
        self._matters[node.number] = before | (places & self._moves[node.number])
        return not torch.equal(before, self._matters[node.number])

    def _share(self, node: Node, wanted: Tensor, place: int) -> Tensor:
        """Return which entries of an argument the wanted entries of a value move with."""
        operation, arg = node.operation, node.args[place]
        by_entry = operation in (*_SAME_PLACES, EQUILIBRIUM) or entrywise_of(operation) is not None
        if by_entry and arg.shape == wanted.shape:
            return wanted
        if operation == str(Kind.TRANSPOSE):
            return wanted.mT
        if _degree(operation) is Degree.LINEAR:
            return _summed(node, wanted, place)
        if len(node.args) == 2:
            other = self._alive[node.args[1 - place].number]
            by_entry = operation in RECORDS and RECORDS[operation].degree is Degree.BILINEAR
            if by_entry and node.shape == arg.shape == other.shape:
                return wanted & other
            if operation == str(Kind.MULTIPLY) and number_place(*node.args) is None:
                found = _one(wanted) @ _one(other).mT if place == 0 else _one(other).mT @ _one(wanted)
                return _met(found)
            if operation == str(Kind.MULTIPLY):
                number = number_place(*node.args)
                return (wanted & other).any().reshape(1, 1) if place == number else wanted & other
        return torch.ones(arg.shape, dtype=torch.bool)


def _one(places: Tensor) -> Tensor:
    return places.double()


def _met(counts: Tensor) -> Tensor:
    return counts > 0


def _is_plain(node: Node) -> bool:
    """Whether a node's value can be looked at entry by entry without writing out what has a structure."""
    return node.is_scalar or isinstance(node.value.ball, ct.Ball | PreciseMatrix)


def _degree(operation: str) -> Degree | None:
    """Return how the entries of an operation's value depend on those of its arguments, where that is so simple."""
    if operation == str(Kind.MULTIPLY):
        return Degree.BILINEAR
    return RECORDS[operation].degree if operation in RECORDS else None


def _sums(node: Node, places: Sequence[Tensor]) -> Tensor:
    """Return where the sums that make a value have a term that is marked: an entry, or a product of two."""
    marks = list(map(_one, places))
    if node.operation == str(Kind.MULTIPLY):
        return _met(marks[0] @ marks[1] if number_place(*node.args) is None else marks[0] * marks[1])
    return _met(_of_marks(node, marks))


def _summed(node: Node, wanted: Tensor, place: int) -> Tensor:
    """Return which entries of an argument are in a sum that is wanted, for a value whose entries are sums."""
    marks = [torch.zeros(arg.shape, dtype=torch.float64) for arg in node.args]
    marks[place].requires_grad_()
    with torch.enable_grad():
        total = (_of_marks(node, marks) * _one(wanted)).sum()
    if not total.requires_grad:
        return torch.zeros(marks[place].shape, dtype=torch.bool)
    (found,) = torch.autograd.grad(total, marks[place])
    return _met(found)


def _of_marks(node: Node, marks: Sequence[Tensor]) -> Tensor:
    """Return the value of a node's function at other arguments; sizes and indices are its own."""
    record, args = RECORDS[node.operation], list(marks)
    for place, arg in enumerate(node.args):
        if record.parameter(place) in (Parameter.SIZE, Parameter.INDEX):
            args[place] = args[place].new_tensor(whole(arg.value))
        elif arg.is_scalar:
            args[place] = args[place][0, 0]
    value: Tensor = FUNCTIONS[node.operation](args[0].new_zeros(()), *args)
    return value.reshape(node.shape)


def moves_freely(node: Node, target: Node) -> bool:
    """Return whether a matrix certainly moves in every (or every symmetric) direction as a variable does."""
    if node is target:
        return not node.is_scalar
    moving = [arg for arg in node.args if target.number in arg.depends]
    if node.operation in (str(Kind.NEGATE), str(Kind.TRANSPOSE)):
        return moves_freely(node.args[0], target)
    if node.operation in (str(Kind.ADD), str(Kind.SUBTRACT)) and len(moving) == 1:
        return moves_freely(moving[0], target)
    if node.operation == str(Kind.ADD) and len(node.args) == 2:
        left, right = node.args
        turned = str(Kind.TRANSPOSE)
        pair = (right.operation == turned and right.args[0] is left) or (
            left.operation == turned and left.args[0] is right
        )
        return pair and moves_freely(left if right.operation == turned else right, target)
    return False
