"""Timings and memory: run each script from the repository's root as `python -m benchmarks.NAME`. Tests time nothing."""
