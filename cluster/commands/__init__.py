"""What each command does; the command line itself is :mod:`cluster.cli.main`."""
