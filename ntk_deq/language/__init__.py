"""The claim language: formulas, types, functions, declarations and their notation. Needs no torch.

tree.py, parser.py        a formula as a tree, and from its text, with the grammar
arguments.py, application.py   functions of arguments, and formulas in which they are written out
function_domains.py       sets of functions and their members
types.py, typing.py       scalars, matrices of symbolic sizes, intervals; shapes.py, calls.py: what fits together
record.py                 what is said of a function: shape, range, laws, notation, mutants, NumPy
functions.py, functionals.py, pieces.py, number_functions.py   the records
hints.py                  names from elsewhere; what was meant by what is no expression; problems, worded and placed
symmetry.py               which formulas are symmetric, and how comparisons order them
domain.py                 what a variable may be: domains and distributions
declaration.py            a setting; a model as data, and those that are known (models.yaml); loss.py: its loss
fixed_point_map.py        what is read off a model's map: the weight of a single layer, a Lipschitz constant
rows.py, row_program.py   whether a model treats its samples apart; such a formula as steps on its samples
families.py, expansion.py things indexed by a layer; a formula written out for a depth, names replaced
indices.py                what stands in the brackets of a family, a run or a quantifier
run.py, recursion.py      kinds of run (fixed-point, descent, flow): keys, index, words; steps that a claim gives
written.py                functions with a parameter, and derivatives by name, in other functions
ranges.py                 what follows without evaluating: ranges of formulas, what lies below what
format.py, notation/      plain text; MathML, LaTeX that is read off it, and how a name is set
"""
