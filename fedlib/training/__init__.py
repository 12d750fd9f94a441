"""Clients' local work: the contract, the models, and the executors that train many clients at once."""
