"""One folder per paper: its claims, readings, printed numbers, theory and studies."""
