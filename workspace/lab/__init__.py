"""The lab: choose a setting, watch it train, write a sampler."""
