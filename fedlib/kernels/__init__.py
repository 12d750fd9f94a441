"""Compiled loops that samplers use."""
