"""What computes the functions of the language, each for a kind of number.

Those of one number are twins of their records (`entrywise`). Of those of matrices some are, too (`twin`: what a twin
has; `pieces`, `matrices`); the others are in `balls`, `floats` and `exact`, which take the twins in. How cotangents
pass them all is in `slopes`.
"""
