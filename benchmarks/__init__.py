"""The engine beside a plain loop and other simulators; start with `python -m benchmarks`."""
