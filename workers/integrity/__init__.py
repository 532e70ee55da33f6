"""Checks of a kernel that need a launch."""
