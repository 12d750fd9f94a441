"""Figures: style, panels, curves, studies, summaries, schematics, interactive curves."""
