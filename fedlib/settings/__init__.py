"""The typed settings of a run, and `params.yaml`, where they are written."""
