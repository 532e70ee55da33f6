"""A process that goes on working is told from one that waits."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workers.bench.idleness import keeps_running

THREAD = "threading.Thread(target=work, daemon=True).start()"
WORKS = f"def work():\n    while True: pass\n{THREAD}"
PAUSES = f"def work():\n    while True: time.sleep(0.01)\n{THREAD}"


@contextmanager
def waiting(code: str) -> Iterator[int]:
    """A process that runs code, then waits for a request."""
    script = f"import sys, threading, time\n{code}\nprint('ready', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize("code", ["", PAUSES])
def test_one_that_waits_does_not_keep_running(code: str) -> None:
    with waiting(code) as pid:
        assert not keeps_running(pid)


def test_one_whose_thread_works_on_keeps_running() -> None:
    with waiting(WORKS) as pid:
        # The thread waits for the lock of Python while the other one begins to read.
        assert any(keeps_running(pid, 100) for _ in range(20))


def test_one_that_has_ended_does_not() -> None:
    with waiting("") as pid:
        pass
    assert not keeps_running(pid)
