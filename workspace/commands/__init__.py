"""The command line, DVC's stages, notebooks, the warm process."""
