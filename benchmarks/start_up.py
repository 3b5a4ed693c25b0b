"""Wall time of the command line's quick commands, and whether they import torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.machine import print_machine, print_table, seconds, verdict

ROUNDS = 7
COMMANDS = {("--help",): 0.4, ("check", "paper_claims.yaml"): 1.5}
# What the console script does, with Python's own record of its imports on stderr.
RUN = "import sys; from ntk_deq.cli.main import run; sys.argv = ['verify-claims', *sys.argv[1:]]; sys.exit(run())"


def imports_torch(arguments: tuple[str, ...]) -> bool:
    """Return whether torch is among the modules that the command imports."""
    command = [sys.executable, "-X", "importtime", "-c", RUN, *arguments]
    record = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    modules = [line.rpartition("|")[2].strip() for line in record.splitlines() if line.startswith("import time:")]
    if "ntk_deq" not in modules:
        raise RuntimeError("The import record does not even name ntk_deq, so that it shows nothing.")
    return any(module == "torch" or module.startswith("torch.") for module in modules)


def main() -> int:
    """Print the table and return the number of missed targets."""
    print_machine()
    script = Path(sys.executable).with_name("verify-claims")
    if not script.exists():
        print(f"skipped: no {script}; install the project first (make verify)")
        return 0
    rows, missed = [], []
    for arguments, limit in COMMANDS.items():
        command = [str(script), *arguments]
        times = [
            seconds(lambda command=command: subprocess.run(command, check=True, capture_output=True))
            for _ in range(ROUNDS)
        ]
        torch = imports_torch(arguments)
        name = " ".join(("verify-claims", *arguments))
        rows.append([name, f"{times[0]:.2f} s", f"{median(times):.2f} s", f"{limit:g} s", "yes" if torch else "no"])
        missed.append(median(times) > limit or torch)
    print_table(["command", "first", f"median of {ROUNDS}", "limit", "imports torch"], rows)
    return verdict("both under their limits, without torch", not any(missed))


if __name__ == "__main__":
    sys.exit(main())
