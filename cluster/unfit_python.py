"""What is said where this Python cannot run Kernelwright, because it lacks a package or is too old.

Runs on the Python that is unfit, so it imports the standard library alone.
"""

import platform
import sys


def unfit(why: str) -> int:
    """Print which Python on which node is unfit and what to do; return the exit code.

    The code is that of :class:`tuner.errors.EnvironmentProblem`.
    """
    sys.stderr.write(f"kernelwright: error: {unfit_words(why)}\n")
    return 3


def unfit_words(why: str) -> str:
    """Which Python on which node is unfit, and what to do."""
    return (
        f"{sys.executable} (Python {platform.python_version()}) on node {platform.node()} cannot "
        f"run Kernelwright: {why}; use the Python of the virtual environment that Kernelwright's "
        "dependencies are in. A job runs the first `python` on the PATH that Ray was started with: "
        "activate the environment before `ray start`"
    )
