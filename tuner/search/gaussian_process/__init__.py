"""A Gaussian process over the feasible set: the strategy behind ``gp``."""
