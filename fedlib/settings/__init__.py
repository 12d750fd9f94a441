"""A run's typed settings, and `params.yaml`, which they come from."""
