"""One folder a paper: its claims, readings, printed numbers, theory and studies."""
