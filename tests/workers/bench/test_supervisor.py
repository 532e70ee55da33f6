"""A child that is killed while it starts: another attempt may succeed, so it is no verdict."""

import pytest

from workers.backends.registry import module_of, register
from workers.bench.deadlines import Deadlines
from workers.bench.supervisor import Supervisor
from workers.forking import ChildFailed


def test_a_child_killed_while_it_starts_is_told_from_one_that_cannot_start(monkeypatch, tmp_path):
    (tmp_path / "killed.py").write_text(
        "import os, signal\n\ndef __getattr__(name):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    adapter = module_of("opencl")
    register("opencl", "killed")
    supervisor = Supervisor("opencl", 0, Deadlines(), tmp_path)
    try:
        with pytest.raises(ChildFailed) as failed:
            supervisor.start()
        assert failed.value.how == "killed"
    finally:
        register("opencl", adapter)
        supervisor.close()
