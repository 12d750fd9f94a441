"""A sampler of fedlib chooses the clients of a Flower federation."""
