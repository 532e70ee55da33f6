"""Fleets: the ways in which jobs reach compile workers and benches."""
