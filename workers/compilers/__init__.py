"""Compilers behind one port, each run in a persistent process of its own."""
