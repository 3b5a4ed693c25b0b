"""On a CUDA device: the tests marked `gpu`, and the kernel at N = m = 4096 against its own matrix products."""

from __future__ import annotations

import subprocess
import sys

import torch

from benchmarks.instances import relu_model, sphere
from benchmarks.machine import medians, print_machine, print_table, verdict
from ntk_deq.quantities import TangentKernel, ntk_gram
from ntk_deq.systems import ImplicitReLU

SIZE, D = 4096, 784
ROUNDS = 3
# A kernel that does nothing but multiply would reach 1; entrywise passes and convergence checks may double that.
LARGEST_RATIO = 2.0
AGREEMENT = 1e-12


def products(model: ImplicitReLU, X: torch.Tensor, kernel: TangentKernel) -> None:
    """Run only the matrix products that the structured kernel cannot do without."""
    Z = torch.zeros(SIZE, SIZE, dtype=X.dtype, device=X.device)
    evaluations = sum(solve.steps + 1 for solve in kernel.solves) + 1  # one more for the active units
    for _ in range(evaluations):
        Z @ model.A
    for F in (Z, Z, Z, X):
        F @ F.T
    torch.cuda.synchronize()


def whole(model: ImplicitReLU, X: torch.Tensor) -> TangentKernel:
    """Return the kernel once the device is done."""
    kernel = ntk_gram(model, X)
    torch.cuda.synchronize()
    return kernel


def main() -> int:
    """Print the figures and return the number of missed targets."""
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        return 0
    print_machine()
    print(f"device: {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests"]
    tests = subprocess.run(command, check=False).returncode
    model, X = relu_model(D, SIZE, device="cuda"), sphere(SIZE, D, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernel = whole(model, X)
    peak = (torch.cuda.max_memory_allocated() - before) / (SIZE * SIZE * X.element_size())
    seconds, floor = medians([lambda: whole(model, X), lambda: products(model, X, kernel)], ROUNDS)
    few = X[:64].cpu()
    reference = ntk_gram(relu_model(D, SIZE), few).matrix
    difference = float((kernel.matrix[:64, :64].cpu() - reference).norm() / reference.norm())
    print_table(
        ["N = m", "kernel", "its products alone", "ratio", "peak matrices", "against the CPU, 64 rows"],
        [
            [
                str(SIZE),
                f"{seconds:.3f} s",
                f"{floor:.3f} s",
                f"{seconds / floor:.2f}",
                f"{peak:.1f}",
                f"{difference:.1e}",
            ]
        ],
    )
    return (
        verdict("tests marked gpu pass", tests == 0)
        + verdict(f"at most {LARGEST_RATIO:g} times its own products", seconds <= LARGEST_RATIO * floor)
        + verdict(f"relative Frobenius difference {difference:.1e} <= {AGREEMENT:.0e}", difference <= AGREEMENT)
    )


if __name__ == "__main__":
    sys.exit(main())
