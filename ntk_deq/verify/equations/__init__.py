"""Hypotheses that are equations: the variables that they give are computed from the others, and that is proven.

`records` says what is known of one, `plan` which equation gives which variables, `floats` computes, for the search and
as a start, and `proven` shows that true values lie in balls around the floats, so that a hypothesis is met.
"""
