"""Claim files: read strictly, checked, typed. Needs no torch; `load.load_suite` is the entrance.

load.py, documents.py      files and what they include; schema.py: what may stand in them, validate.py: checked
settings.py, runs.py, assemble.py    one claim from its entry; inheritance.py: mutants, what they override
functions.py               functions of arguments, in claims and systems; claims that quantify over functions
existence.py               what a claim says exists: variables, constants of O(...); that a system's equilibrium does
entries.py, families.py    families: how they are written, claims that speak of them
open_depth.py, depths.py   such claims typed with their depth open, and written out for each depth
systems.py                 systems of a claim file
check.py                   what does not fit, is too large, or is read otherwise than meant
claim.py                   the result: Claim, IllFormed, Suite
mutation.py, mutation_rules.py    claims with one thing changed, and whether they follow all the same
describe.py, statement.py  claims in words and formulas
"""

from ntk_deq.claims.claim import Claim, IllFormed, Suite, Verdict
from ntk_deq.errors import ClaimFileError, ExpressionError, Problem
from ntk_deq.language.declaration import Setting

__all__ = ["Claim", "ClaimFileError", "ExpressionError", "IllFormed", "Problem", "Setting", "Suite", "Verdict"]
