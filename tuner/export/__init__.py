"""The tuned sources, their dispatch header, and their record."""
