"""`fedlib.simulate`: the simulator for a program's own models, data and samplers, and its results."""
