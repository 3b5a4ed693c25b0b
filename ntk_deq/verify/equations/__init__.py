"""Hypotheses that are equations: the variables that they give are computed from the others, and that is proven.

`plan` says which equation gives which variables, `symmetry` which equations are symmetric, `floats` computes, for the
search and as a start, and `proven` shows that true values lie in balls around the floats, so that a hypothesis is met.
"""
