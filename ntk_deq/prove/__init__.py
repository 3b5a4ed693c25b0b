"""Proofs of claims about real numbers: exact arguments first, then branch and bound (docs/design.md, section 1).

problem.py       the claim as hypotheses and a goal in numbers; terms.py: its terms
exact.py, algebra.py, cases.py    what hypotheses say, identities and case distinctions, by exact algebra
positivity.py, signomial.py, signs.py, monotone.py    why a term has a sign
branch.py, box.py, intervals.py, enclosure.py    boxes of the domain, each decided in balls or cut in two, and
                 a point that meets the hypotheses
"""
