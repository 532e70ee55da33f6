"""One folder for each backend: all that knows its API."""
