"""The run as a state machine without I/O: events in, commands out."""
