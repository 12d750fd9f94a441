"""Reads results: measures, claims and verdicts, readings, studies."""
