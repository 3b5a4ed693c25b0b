"""Set-up of all tests."""

import os
import signal
import threading

import torch

# The instances of the tests are small: more threads only wait for each other, and on a busy machine for long.
torch.set_num_threads(1)


# Tests start Python many times: each would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure():
    """Take signals as a terminal sends them: shells start background jobs with Ctrl-C ignored, `nohup` with SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name, usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)
