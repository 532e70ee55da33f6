"""Runs watched from their directories: the live table, the page and its metrics."""
