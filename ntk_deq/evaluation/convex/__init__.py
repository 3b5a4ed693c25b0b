"""Minima of formulas: `prox`, `moreau`, `conjugate`, `argmin` and the like, found in floats, then proven.

objective.py     each of them as the minimum of one formula
tensors.py       where floats find it, for one instance or many, with derivatives
points.py        the formula at a ball of points: value, slopes, corners that are met
shapes.py, curvature.py   what is convex in what, and between which curvatures
certificate.py   from a point to its distance from the minimiser: subgradients over moduli
sets.py          indicators: the affine constraints of a minimum, and the penalty that stands for them
recession.py     how a function grows along a ray: why it has no minimum
scalars.py       the least value of a function of one number, convex or not, by branch and bound
operators.py     what an environment is handed: the value of an operator, or why there is none
moved.py         how a minimiser moves with what it depends on
newton.py        Newton's method with corners held, for points.py's conditions
proximal.py      proximal maps, envelopes and conjugates from Python
"""
