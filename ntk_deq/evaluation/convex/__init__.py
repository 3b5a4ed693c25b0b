"""Minima of formulas: `prox`, `moreau`, `conjugate`, `argmin` and the like, found in floats, then proven.

objective.py     each of them as the minimum of one formula
tensors.py       where floats find it, for one instance or many, with derivatives
points.py        the formula at a ball of points: value, slopes, corners that are met
shapes.py, curvature.py   what is convex in what, and between which curvatures
certificate.py   from a point to its distance from the minimiser: subgradients over moduli
recession.py     how a function grows along a ray: why it has no minimum
operators.py     what an environment is handed: the value of an operator, or why there is none; functions of one number
                 are bounded from below by branch and bound, convex or not
moved.py         how a minimiser moves with what it depends on
newton.py        Newton's method with corners held, for points.py's conditions
proximal.py      proximal maps, envelopes and conjugates from Python
"""
