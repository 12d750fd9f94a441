"""Local work: the contract, the models, and three executors that train many clients at once."""
