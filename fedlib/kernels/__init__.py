"""Compiled loops for the samplers."""
