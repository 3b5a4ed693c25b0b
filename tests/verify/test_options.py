"""Every setting of a judgement is checked when it is made."""

import math

import pytest
import torch

from ntk_deq.errors import ArgumentError
from ntk_deq.verify.options import Options

WHOLE = "must be an integer >= "


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, f"{WHOLE}0. Got -1."),
        ({"seed": 1.0}, f"{WHOLE}0. Got 1.0."),
        ({"seed": None}, f"{WHOLE}0. Got None."),
        ({"instances": -1}, f"{WHOLE}1, or None. Got -1."),
        ({"instances": 0}, f"{WHOLE}1, or None. Got 0."),
        ({"instances": True}, f"{WHOLE}1, or None. Got True."),
        ({"usual": 0}, f"{WHOLE}1. Got 0."),
        ({"search": -1}, f"{WHOLE}0, or None. Got -1."),
        ({"boxes": -1}, f"{WHOLE}0. Got -1."),
        ({"boxes": "many"}, f"{WHOLE}0. Got 'many'."),
        ({"precision": 1}, "must be an integer from 53 to 4096. Got 1."),
        ({"precision": 4097}, "must be an integer from 53 to 4096. Got 4097."),
        ({"precision": None}, "must be an integer from 53 to 4096. Got None."),
        ({"time_limit": 0}, "must be a number of seconds > 0, or None. Got 0."),
        ({"time_limit": math.nan}, "must be a number of seconds > 0, or None. Got nan."),
        ({"time_limit": math.inf}, "must be a number of seconds > 0, or None. Got inf."),
        ({"time_limit": "5"}, "must be a number of seconds > 0, or None. Got '5'."),
        ({"stop_early": 1}, "must be True or False. Got 1."),
        ({"findings": "no"}, "must be True or False. Got 'no'."),
        ({"satisfy": None}, "must be True or False. Got None."),
        ({"shrink": 0}, "must be True or False. Got 0."),
        ({"device": "gpu"}, "must be 'cpu', 'cuda' or 'cuda:N'. Got 'gpu'."),
        ({"device": torch.device("cpu")}, "must be 'cpu', 'cuda' or 'cuda:N'. Got device(type='cpu')."),
        ({"dtype": torch.float16}, "must be torch.float64 or torch.float32. Got torch.float16."),
        ({"dtype": "float64"}, "must be torch.float64 or torch.float32. Got 'float64'."),
        ({"smallest": "m"}, "must be a tuple of names. Got 'm'."),
        ({"smallest": ("m", 1)}, "must be a tuple of names. Got ('m', 1)."),
        ({"store": ""}, "must be the name of a folder, or None. Got ''."),
        ({"out": 3}, "must be the name of a folder, or None. Got 3."),
    ],
)
def test_wrong_values_are_refused(wrong, message):
    with pytest.raises(ArgumentError) as error:
        Options(**wrong)
    (name,) = wrong
    assert str(error.value) == f"`{name}` of Options {message}"


def test_the_ends_of_what_is_allowed():
    Options(seed=0, instances=1, search=0, boxes=0, usual=1, precision=53, time_limit=1e-9, smallest=())
    Options(precision=4096, time_limit=10**6, smallest=("m",), device="cuda:1", dtype=torch.float32, out="o", store="s")
