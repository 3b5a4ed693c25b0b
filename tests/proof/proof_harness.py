"""Short ways from a text to what the prover makes of it."""

import tempfile
from pathlib import Path

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.prove.problem import Problem, problems
from ntk_deq.verify.prover import Proof, prove_claim

BUDGET = 300


def claims_of(text: str) -> list[Claim]:
    """Load a claim file given as text; every claim of it must be well-formed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "claims.yaml"
        path.write_text(text, encoding="utf-8")
        found = load_suite(path).claims
    assert all(isinstance(claim, Claim) for claim in found), found
    return [claim for claim in found if isinstance(claim, Claim)]


def claim_of(conclude: str, *, assume: str = "", sizes: str = "", **domains: str) -> Claim:
    """Return a claim about scalars, each with its domain as text."""
    listed = ", ".join(f'{name}: "{domain}"' for name, domain in domains.items())
    head = f"{{sizes: {{{sizes}}}, domain: {{{listed}}}}}" if sizes else f"{{domain: {{{listed}}}}}"
    hypothesis = f'assume: "{assume}", ' if assume else ""
    text = f'suite: t\nsettings:\n  s: {head}\nclaims:\n  - {{id: C, setting: s, {hypothesis}conclude: "{conclude}"}}\n'
    return claims_of(text)[0]


def prove(conclude: str, *, assume: str = "", sizes: str = "", budget: int = BUDGET, **domains: str) -> Proof:
    found = prove_claim(claim_of(conclude, assume=assume, sizes=sizes, **domains), budget=budget)
    assert found is not None
    return found


def verdict(conclude: str, *, assume: str = "", sizes: str = "", budget: int = BUDGET, **domains: str) -> str:
    return prove(conclude, assume=assume, sizes=sizes, budget=budget, **domains).verdict.value


def problem_of(conclude: str, *, assume: str = "", **domains: str) -> Problem:
    claim = claim_of(conclude, assume=assume, **domains)
    return next(problems(claim, claim.settings[0]))
