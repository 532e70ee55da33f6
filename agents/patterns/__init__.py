"""Patterns: what made one kernel faster, for later runs of similar kernels."""
