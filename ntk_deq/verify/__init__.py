"""Claims judged: on one instance, on many, against proofs and searches, in worker processes.

A claim is judged in this order; these are the files that a reader of a verdict needs:

    runner.py               judge(claim, options): one claim to one result, whatever goes wrong
    depths.py               a claim with families: its depths one after the other, and their results added up
    trial.py                its stages: stored instances, ladder, boundary, search, shrinking
    feasible.py             which instances of the ladder, and what stands in for those that fail a hypothesis
    judge.py                one instance: hypotheses first, then conclusions; in exact arithmetic, too
    formulas.py             what its formulas refer to, and their values as balls (`ntk_deq.evaluation`)
    equations/              variables that hypotheses give by equations: plan, Newton in floats, proof
    refine.py               what float64 leaves open: more bits, then algebraic numbers
    boundary.py             small whole-number instances on the edge of weak hypotheses
    scoring.py              the same claim in plain floats, many instances at once, for the search
    counterexamples.py      search and shrinking (`ntk_deq.falsify`), each find and step judged in balls; the store
    tally.py                many judgements to one verdict, evidence and support
    prover.py               claims about numbers alone (`ntk_deq.prove`)

Runs: runs.py says what a kind of run is to a judgement and to a search, twins.py finds it; `training/` has descent.py
and flow.py (judged.py: what they share).
What is written down: results.py and witness.py (records), replay/ (counterexample files), script.py (Python
to copy; printer.py, tangents.py). About claims rather than instances: findings.py (with mutants), smallest.py.
Processes: pool/.
"""
