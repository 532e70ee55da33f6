"""The run directory and its journal: the only truth about a run that survives it."""
