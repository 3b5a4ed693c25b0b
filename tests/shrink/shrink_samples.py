"""Settings, instances and claims for the tests of the shrinker."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import Position
from ntk_deq.evaluation.instance import Instance
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.types import SCALAR, SizeRange, Type, matrix

ROOT = Path(__file__).parent.parent.parent
UNIT = Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), low_open=True, high_open=True, text="(0, 1)")
SQUARE_KINDS = (
    DomainKind.SYMMETRIC,
    DomainKind.SKEW,
    DomainKind.PSD,
    DomainKind.DIAGONAL,
    DomainKind.ORTHOGONAL,
)


def tensor(value: object) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def setting_of(*variables: Free, **sizes: tuple[int, int]) -> Setting:
    spans = {letter: SizeRange(*span) for letter, span in sizes.items()}
    return Setting("s", None, spans, {v.name: v for v in variables}, {}, None, Position("t.yaml", 1, 1))


def free(name: str, kind: DomainKind | Domain = DomainKind.REAL, shape: Type = SCALAR) -> Free:
    return Free(name, shape, kind if isinstance(kind, Domain) else Domain(kind, text=kind.value))


def instance_of(sizes: dict[str, int] | None = None, **values: object) -> Instance:
    tensors = {name: v if isinstance(v, Tensor) else tensor(v) for name, v in values.items()}
    return Instance("s", "as written", dict(sizes or {}), tensors, 7)


def square(name: str, kind: DomainKind = DomainKind.REAL) -> Free:
    return free(name, kind, matrix("n", "n"))


def paper_claim(name: str, file: str = "checks/implicit_relu.yaml") -> Claim:
    found = next(c for c in load_suite(ROOT / file).claims if c.id == name)
    assert isinstance(found, Claim)
    return found
