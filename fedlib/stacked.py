"""Many clients as one stack of tensors: the executor for logistic regression and MLPs, and for everything on a GPU."""

from fedlib.looped import ClientLoop


class StackedExecutor(ClientLoop):
    """Until stacking arrives: one client after the other."""
