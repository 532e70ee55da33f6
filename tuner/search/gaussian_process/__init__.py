"""A Gaussian process over the exact feasible set: the strategy behind ``gp``."""
