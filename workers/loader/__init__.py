"""Exported kernels in a Python application: chosen, checked, compiled and launched."""
