"""Federated algorithms. To add one, put a file here that registers a class; nothing else needs an edit."""

from fedlib.algorithms.base import FedAvg, aggregation_weights, find, load_all, register, version_of

__all__ = ["FedAvg", "aggregation_weights", "find", "load_all", "register", "version_of"]
