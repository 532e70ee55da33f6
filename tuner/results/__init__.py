"""The result of a run: pure functions of its history."""
