"""What a machine without CuPy is told."""

import sys

import pytest

from tuner.errors import EnvironmentProblem
from workers.backends.cuda.driver import import_cuda


def test_cupy_that_is_not_installed_is_no_failure_but_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api", None)
    with pytest.raises(EnvironmentProblem) as told:
        import_cuda()
    assert str(told.value) == (
        "CuPy is not installed; only CUDA needs it: "
        "pip install '.[cuda13]' in a clone of kernelwright"
    )
