"""What happened in a run: facts, their file and their fold."""
