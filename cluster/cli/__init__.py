"""The command line: names, options and help of all commands, the live line, and exit codes."""
