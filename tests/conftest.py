"""Set-up of all tests."""

import torch

# The instances of the tests are small: more threads only wait for each other, and on a busy machine for long.
torch.set_num_threads(1)
