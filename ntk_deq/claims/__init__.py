"""Claim files: read strictly, checked, typed. Needs no torch; `load.load_suite` is the entrance.

load.py, documents.py      files and what they include; schema.py, json_schema.py: what may stand in them
settings.py, images.py, runs.py, assemble.py    one claim from its entry; inheritance.py: mutants, what they override
functions.py, function_sets.py   functions of arguments, in claims and systems; claims that quantify over functions
entries.py, families.py    families: how they are written, claims that speak of them
open_depth.py, depths.py   such claims typed with their depth open, and written out for each depth
systems.py, certificates.py    systems of a claim file; what shows that their equilibrium exists
check.py, validate.py, implication.py, entrywise.py    what is wrong, odd, or implied
claim.py                   the result: Claim, IllFormed, Suite
mutation.py, mutation_rules.py    claims with one thing changed
describe.py, statement.py  claims in words and formulas
"""

from ntk_deq.claims.claim import Claim, IllFormed, Suite, Verdict
from ntk_deq.errors import ClaimFileError, ExpressionError, Problem
from ntk_deq.language.setting import Setting

__all__ = ["Claim", "ClaimFileError", "ExpressionError", "IllFormed", "Problem", "Setting", "Suite", "Verdict"]
