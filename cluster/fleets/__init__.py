"""Fleets: the ways in which work reaches compile workers and benches."""
