"""Profiles, captures and injects kernels in a running, unmodified CUDA application."""
