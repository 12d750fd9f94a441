"""What is read off results: measures, claims and verdicts, readings, studies."""
