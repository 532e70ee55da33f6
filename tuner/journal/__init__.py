"""The journal of a run: its facts, the file that holds them, and what they add up to."""
