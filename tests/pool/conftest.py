import pytest
from pool_harness import HOLDS, MIXED, REFUTED, claims_of

from ntk_deq.verify.runner import Options, judge_claims


@pytest.fixture(scope="package", autouse=True)
def warm(tmp_path_factory):
    """What judging imports when it first needs it, workers are then born with: else it would count as their time."""
    bodies = {"a": HOLDS, "b": REFUTED, "c": MIXED["proved"]}
    folder = tmp_path_factory.mktemp("warm")
    list(judge_claims(claims_of(folder, bodies), Options(instances=4, search=20, out=str(folder))))
