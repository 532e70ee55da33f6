"""Checks of a kernel that need a launch: pure functions of what a launch left and took."""
