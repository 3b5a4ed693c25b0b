"""Whether what a claim says exists does: values found and proven on an instance, or a proof that there are none.

    decision.py     the stage of a judgement: what a judgement leaves open about the existing variables, decided;
                    values are tried, each judged in their place like any instance
    constraints.py  conclusions and domains read as polynomials in the entries that are looked for, over the rationals
    linear.py       linear equations and inequalities: a point, or multipliers that contradict them
    contradiction.py  what contradicts itself: linear constraints, or a combination that is negative everywhere;
                    numbers, by proof

A search that finds nothing shows nothing. What shows that there is nothing is a contradiction over the rationals, whose
multipliers are checked again, or a proof by `ntk_deq.prove` for numbers.
"""
