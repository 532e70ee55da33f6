"""The largest budgets, apart from the model: the command line reads them without pydantic."""

LONGEST_SECONDS = 1_000_000_000
"""31 years. Every budget of time is finite, so that what is left of it is a number."""

LARGEST_COUNT = 1_000_000_000
"""Of configurations, GPUs and tokens."""
