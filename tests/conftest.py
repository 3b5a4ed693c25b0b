"""Set-up of all tests."""

import signal
import threading

import torch

# The instances of the tests are small: more threads only wait for each other, and on a busy machine for long.
torch.set_num_threads(1)


def pytest_configure():
    """Take Ctrl-C as a terminal would send it: a shell starts what it puts in the background with it ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
