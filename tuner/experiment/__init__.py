"""Experiments: the YAML format, its checks, and arguments resolved for a shape."""
