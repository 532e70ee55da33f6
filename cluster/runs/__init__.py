"""One process's work on a run: where it executes, with and without agents, and its budget."""
