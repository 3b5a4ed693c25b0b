"""What computes the functions of the language, each for a kind of number.

Those of one number are twins of their records (`entrywise`). Those of matrices are in `balls`, `floats` and `exact`,
which take the twins in; how cotangents pass them all is in `slopes`.
"""
