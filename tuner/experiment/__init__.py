"""The experiment: its YAML format, its checks, its resolution for one shape."""
