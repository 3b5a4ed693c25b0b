"""Reverse mode in balls: from the cotangents of a formula's value back to those of a variable."""

from __future__ import annotations

from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.errors import LimitError
from ntk_deq.verify.differentiation.adjoint import Adjoint, PreciseAdjoint
from ntk_deq.verify.differentiation.cotangent import Cotangent, plus
from ntk_deq.verify.differentiation.function_rules import IN_FLOATS, rule_of
from ntk_deq.verify.differentiation.node import EQUILIBRIUM, Node, reachable
from ntk_deq.verify.differentiation.tape import Tape
from ntk_deq.verify.environment import Notes

Seed = tuple[int, int, int]
"""Names a set of cotangents: the differentiated node, and the first and the number of its entries."""


class Reverse:
    """Reverse mode over one tape; adjoints of equilibria are solved once for each set of cotangents.

    Args:
        tape: The nodes.
        notes: Where troubles are recorded.
    """

    def __init__(self, tape: Tape, notes: Notes) -> None:
        self._tape, self._notes = tape, notes
        self._adjoints: dict[int, Adjoint | PreciseAdjoint] = {}
        self._solved: dict[tuple[int, Seed], Cotangent] = {}

    def pull(self, root: Node, cot: Cotangent, target: Node, seed: Seed | None = None) -> Cotangent:
        """Return the cotangents of a leaf.

        Args:
            root: The formula; it depends on the leaf.
            cot: The cotangents of its value.
            target: A variable, or the state in a map.
            seed: Names the cotangents, so that adjoints can be kept; None: they are not.

        Raises:
            NoRuleError: A function on the way has no certified rule.
            LimitError: One has none at more than float64's precision, where that is asked for.
        """
        found: dict[int, Cotangent] = {root.number: cot}
        for node in reachable([root]):
            if target.number not in node.depends or node is target or node.number not in found:
                continue
            self._notes.check_time()
            arriving = found.pop(node.number)
            for place, arg in enumerate(node.args):
                if target.number not in arg.depends:
                    continue
                share = self._share(node, arriving, place, seed)
                found[arg.number] = plus(found[arg.number], share) if arg.number in found else share
        return found[target.number]

    def _share(self, node: Node, cot: Cotangent, place: int, seed: Seed | None) -> Cotangent:
        if node.operation in IN_FLOATS and isinstance(cot.ball, PreciseMatrix):
            raise LimitError(f"the derivative of {node.operation} is not evaluated at more than float64's precision")
        if node.operation != EQUILIBRIUM:
            return rule_of(node.operation)(node, cot, place, self._notes)
        if seed is None:
            return self._adjoint(node).solve(cot)
        key = (node.number, seed)
        if key not in self._solved:
            self._solved[key] = self._adjoint(node).solve(cot)
        return self._solved[key]

    def _adjoint(self, node: Node) -> Adjoint | PreciseAdjoint:
        if node.number not in self._adjoints:
            state, env = self._tape.equilibria[node.number]
            if env.precision is None:
                self._adjoints[node.number] = Adjoint(node.args[0], state, env, self.pull)
            else:
                self._adjoints[node.number] = PreciseAdjoint(node.args[0], state, self.pull)
        return self._adjoints[node.number]
