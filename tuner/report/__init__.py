"""Reports of a run: text, tables, estimates of duration."""
