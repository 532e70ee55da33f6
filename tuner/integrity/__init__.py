"""What tells from source and compiled code that a kernel must not run."""
