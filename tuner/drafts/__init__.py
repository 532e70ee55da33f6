"""Specs that are written for the user: from sources, captures, arrays, or other tuners' problems.

What cannot be known is guessed, with a reason and a confidence.
"""
