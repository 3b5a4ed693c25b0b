"""Formulas on an instance: one tree, evaluated in balls, in many bits, in exact numbers and in torch.

environment.py   what names mean: variables, sizes, definitions, model; how states and derivatives come (Providers)
balls.py         evaluate(expr, env): a scalar, a matrix or a truth value, each with a certified radius
arithmetic.py    sums, products, comparisons: certain, tight or open; quantity.py: the values themselves
functions/       the twin of every function's record: balls, floats, slopes, exact numbers
equilibria.py    the model's state: solved in floats, enclosed by residual and gap; the steps of recursions
existence.py     why the state is the only one, or the only one near by
derivatives/     grad and jac: a tape, reverse mode in balls, kinks, an estimate; what hands both to environments
convex/          what takes a function to be minimised: prox, argmin and the like, certified by convexity
floats.py        the same formulas in torch, differentiable, many instances at once; batches.py: their equilibria
margins.py       relative margins of comparisons in floats, for the search; below which magnitude they are noise
exact.py         decided over algebraic numbers; instance.py: sizes and values
"""
