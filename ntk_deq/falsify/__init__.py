"""Instances to test a claim on, and the search for one that breaks it; knows no claim.

ladder.py        instance number k of a setting: structured ones (families.py, exact_builders.py) and random ones
domains.py, scalars.py    members of domains, draws from distributions, telling scalars
search/          campaign.py: places, points, descents; descents.py: the methods; archive.py: what is found, by margins
                 of hypotheses and conclusions; starts.py: where it begins, and variants that meet the hypotheses;
                 feasible.py: moved into the hypotheses; wild.py: matrices that break norms' folklore
shrink/          a counterexample with smaller sizes and plainer numbers
"""
