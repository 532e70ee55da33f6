"""The lease of a run directory: one writer, also without ``flock`` and from several machines."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from tuner import lease
from tuner.errors import EnvironmentProblem
from tuner.lease import LEASE, STALE_SECONDS, Lease, read_tenure

HOLD = """
import pathlib, sys
from tuner import lease
{before}
lease.Lease(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def no_flock(descriptor, operation):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.fixture
def without_flock(monkeypatch):
    monkeypatch.setattr(fcntl, "flock", no_flock)


def abandoned(folder, before=""):
    """A lease of a process that was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(before=before), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"held\n"
    assert read_tenure(folder).alive
    child.kill()
    child.communicate()
    return child.pid


def of_another_machine(folder, age, **other):
    """A lease whose holder is on another machine, with its last heartbeat so long ago."""
    held = Lease(folder, "Slurm job 17")
    path = folder / LEASE
    found = json.loads(path.read_text())
    held.release()
    path.write_text(json.dumps(found | {"host": "node7", "boot": "another"} | other))
    os.utime(path, (time.time() - age,) * 2)


def test_it_says_who_holds_it_and_goes_with_its_release(tmp_path):
    held = Lease(tmp_path, "Slurm job 17")
    found = read_tenure(tmp_path)
    assert found.alive
    assert str(found) == f"process {os.getpid()} on {os.uname().nodename} (Slurm job 17)"
    assert held.took_over == ""
    held.check()
    held.release()
    held.release()
    assert read_tenure(tmp_path) is None


def test_readers_lock_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", None)
    assert read_tenure(tmp_path) is None
    (tmp_path / LEASE).write_text('{"half')
    assert read_tenure(tmp_path).alive


def test_one_process_holds_it_on_storage_without_flock(tmp_path, without_flock):
    held = Lease(tmp_path)
    with pytest.raises(EnvironmentProblem, match=f"in use by process {os.getpid()} on .*: wait"):
        Lease(tmp_path)
    held.release()
    Lease(tmp_path).release()


@pytest.mark.parametrize("before", ["", "import errno, fcntl\n"])
def test_a_killed_process_holds_nothing_on_its_machine(tmp_path, request, before):
    if before:
        request.getfixturevalue("without_flock")
        before += "def none(*_): raise OSError(errno.ENOLCK, '')\nfcntl.flock = none"
    pid = abandoned(tmp_path, before)
    found = read_tenure(tmp_path)
    assert not found.alive
    assert found.why_stale.startswith(f"process {pid} on ")
    held = Lease(tmp_path)
    assert held.took_over == str(found)
    held.release()


def test_a_process_of_another_machine_lives_as_long_as_its_heartbeat(tmp_path):
    of_another_machine(tmp_path, STALE_SECONDS - 20)
    with pytest.raises(
        EnvironmentProblem, match=r"process \d+ on node7 \(Slurm job 17\), whose last heartbeat was"
    ):
        Lease(tmp_path)
    assert read_tenure(tmp_path).alive
    os.utime(tmp_path / LEASE, (time.time() - STALE_SECONDS - 1,) * 2)
    assert "gave no heartbeat for 6" in read_tenure(tmp_path).why_stale
    held = Lease(tmp_path)
    assert read_tenure(tmp_path).holder.host == os.uname().nodename
    held.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_copy_of_a_run_that_goes_on_is_free(tmp_path):
    (tmp_path / "run").mkdir()
    held = Lease(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    Lease(tmp_path / "copy").release()
    held.release()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.unlink(), "the run directory was removed"),
        (lambda path: path.write_text("{}"), "another process took the run directory over"),
    ],
)
def test_a_process_that_lost_it_while_it_was_suspended_writes_no_more(
    tmp_path, monkeypatch, spoil, why
):
    held = Lease(tmp_path)
    spoil(tmp_path / LEASE)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime", lambda _: now + STALE_SECONDS)
    with pytest.raises(EnvironmentProblem, match=why):
        held.check()
    held.release()


def test_a_heartbeat_is_a_touch_which_a_full_disk_does_not_refuse(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
    held = Lease(tmp_path)
    os.utime(tmp_path / LEASE, (0, 0))
    for _ in range(500):
        if (tmp_path / LEASE).stat().st_mtime:
            break
        time.sleep(0.01)
    assert read_tenure(tmp_path).age < STALE_SECONDS
    held.release()


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / LEASE).mkdir()
    with pytest.raises(EnvironmentProblem, match=f"{LEASE} is not a regular file: remove it"):
        read_tenure(tmp_path)
