import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tuner.errors import EnvironmentProblem
from workers.scratch import PrivateFolder, device_lock, runtime_directory

HOLDER = """
import sys, threading
from workers.scratch import device_lock
with device_lock(sys.argv[1], threading.Event()):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "gpu-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def wait_for(device, ended) -> None:
    with contextlib.suppress(EnvironmentProblem), device_lock(device, ended):
        pass


def test_the_lock_of_a_device_is_host_wide(holder) -> None:
    taken = threading.Event()

    def take() -> None:
        with device_lock("gpu-1", threading.Event()):
            taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not taken.wait(0.2)
    with device_lock("gpu-2", threading.Event()):
        pass
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert taken.wait(10)
    thread.join()


def test_a_long_wait_is_told_with_who_has_the_device(holder, monkeypatch, caplog) -> None:
    monkeypatch.setattr("workers.scratch.LONG_SECONDS", 0.1)
    holder.send_signal(signal.SIGSTOP)
    ended = threading.Event()
    waiting = threading.Thread(target=wait_for, args=("gpu-1", ended))
    waiting.start()
    while not caplog.messages:
        assert waiting.is_alive()
        time.sleep(0.01)
    ended.set()
    waiting.join()
    assert caplog.messages == [f"gpu-1 is in use by process {holder.pid}, waiting for it"]


def test_the_lock_is_free_when_its_holder_is_killed(holder) -> None:
    holder.kill()
    with device_lock("gpu-1", threading.Event()):
        pass


def test_waiting_can_be_aborted(holder) -> None:
    abort = threading.Event()
    threading.Timer(0.05, abort.set).start()
    with pytest.raises(EnvironmentProblem, match="closed"), device_lock("gpu-1", abort):
        pass


def test_a_place_that_others_may_write_to_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = runtime_directory()
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    with pytest.raises(EnvironmentProblem, match="not a private directory"):
        runtime_directory()


def test_scratch_of_the_dead_is_swept_and_of_the_living_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = (
        "import os\nfrom workers.scratch import PrivateFolder\n"
        "folder = PrivateFolder('test')\nprint(folder.path, flush=True)\nos._exit(9)\n"
    )
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    living = PrivateFolder("test")
    dead = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    ).stdout.strip()
    assert Path(dead).is_dir()
    third = PrivateFolder("test")
    assert not Path(dead).exists()
    assert living.path.is_dir()
    for folder in (living, third):
        folder.remove()
        folder.remove()
        assert not folder.path.exists()


def test_a_scratch_folder_goes_with_whoever_forgets_it() -> None:
    path = PrivateFolder("test").path
    gc.collect()
    assert not path.exists()
