"""What holds for every test: no patterns of the user's are read or left.

One thread for linear algebra: matrices here are small, and on a busy machine the threads of
OpenBLAS spend their time waiting for each other. Set before NumPy is first imported.
"""

import os
from typing import Any

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["KERNELWRIGHT_HOME"] = ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Two processes for ``-n 2``: one for whole runs and Ray, which mostly wait, one for the rest.

    What is timed is disturbed least so, and there is one Ray.
    """
    from xdist.scheduler import LoadScopeScheduling

    class InTwo(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "runs" if nodeid.startswith("tests/cluster/") else "parts"

    return InTwo(config, log)
