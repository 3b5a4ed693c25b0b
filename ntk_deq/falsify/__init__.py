"""Instances to test a claim on, and the search for one that breaks it; knows no claim.

ladder.py        instance number k of a setting: structured ones (families.py, exact_builders.py) and random ones
domains.py, scalars.py    members of domains, draws from distributions, telling scalars
repair.py        one that meets the hypotheses in the place of one that does not
score.py         what a search asks of a claim: margins of hypotheses and conclusions
search/          campaign.py: places, points, descents; descents.py: the methods;
                 feasible.py: moved into the hypotheses; wild.py: matrices that break norms' folklore
shrink/          a counterexample with smaller sizes and plainer numbers
"""
