"""Runs as things that last: the store, the archive, results; where runs are trained and what they cost."""
