"""``python -m cluster`` is ``kernelwright``, for a checkout that is not installed."""

from cluster.cli.main import main

main()
