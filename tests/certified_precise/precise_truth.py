"""Exact numbers as balls far narrower than anything under test, so that containment can be asked for strictly."""

import flint
from flint import arb


def truth(number):
    with flint.ctx.workprec(8192):
        return arb(number)


def root(number):
    with flint.ctx.workprec(8192):
        return arb(number).sqrt()
