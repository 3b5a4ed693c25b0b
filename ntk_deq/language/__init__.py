"""The claim language: formulas, types, functions, declarations and their notation. Needs no torch.

tree.py, parser.py        a formula as a tree, and from its text (grammar.lark); brackets.py: pieces and blocks
definition.py, application.py   functions of arguments, and formulas in which they are written out (substitution.py)
arguments.py, function_domains.py   what names mean inside functions; sets of functions and their members
types.py, typing.py       scalars and matrices of symbolic sizes; operators.py, calls.py: what fits together
record.py                 what is said of a function: shape, range, laws, notation, mutants, NumPy
functions.py, matrix_functions.py, functionals.py, pieces.py   the records; values.py: ranges as rules
hints.py, misreadings.py  names from elsewhere; what a text that is no expression may have meant
symmetry.py               which formulas are symmetric, and how comparisons order them
domain.py, interval.py, distributions.py, setting.py   where the values of variables come from
declaration.py, library.py   a model as data, and those that are known (models.yaml); loss.py: what its loss is
lipschitz.py, layer.py   what is read off a model's map: a Lipschitz constant, the weight of a single layer
families.py, members.py   things indexed by a layer; expansion.py: a formula written out for a depth
run.py, steps.py          kinds of run (fixed-point, descent, flow): keys, index, words; what changes along one
ranges.py, ordering.py, shapes.py   what follows: ranges of formulas, what lies below what, checked sizes
format.py, notation/      plain text; LaTeX, MathML, SymPy
"""
