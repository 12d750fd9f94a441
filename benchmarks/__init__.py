"""Benchmarks that compare the engine with a plain loop and other simulators; start with `python -m benchmarks`."""
