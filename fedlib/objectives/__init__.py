"""Local objectives: what a client minimises. To add one, put a file here that registers a class."""

from fedlib.objectives.base import Step, find, load_all, register, version_of

__all__ = ["Step", "find", "load_all", "register", "version_of"]
