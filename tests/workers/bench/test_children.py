"""The children of a bench: opened ahead, ended beside what follows."""

import os

import pytest

from tuner.errors import EnvironmentProblem
from workers.bench.children import BenchChildren
from workers.bench.deadlines import Deadlines


def test_a_child_is_opened_ahead_and_others_end_meanwhile(tmp_path):
    children = BenchChildren("opencl", 0, Deadlines(), tmp_path)
    children.open_ahead()
    first = children.take()
    running = first.pid
    assert running is not None
    children.end(first.close)
    children.open_ahead()
    second = children.take()
    children.settle()
    assert first.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(running, 0)
    assert second.describe()[0].backend == "opencl"
    children.close()
    with pytest.raises(EnvironmentProblem, match="closed"):
        children.take()
