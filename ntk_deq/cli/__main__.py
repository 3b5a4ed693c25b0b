"""Run the command line as `python -m ntk_deq.cli`."""

from ntk_deq.cli.main import run

if __name__ == "__main__":
    run()
