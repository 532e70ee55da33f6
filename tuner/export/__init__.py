"""Exports: tuned sources, a dispatch header, and a record to verify them."""
