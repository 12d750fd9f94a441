"""Stored runs: the store, the archive and results; where runs are trained, and what they cost."""
