"""The lock of a device: host-wide, fair, and kept no longer than a turn while others wait."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tuner.errors import EnvironmentProblem
from workers.device_lock import KEPT_SECONDS, DeviceLock
from workers.scratch import runtime_directory

HOLDER = """
import sys, threading
from workers.device_lock import DeviceLock
with DeviceLock(sys.argv[1], threading.Event()).held():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(place):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "gpu-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(place), "PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def lock(identity: str = "gpu-1") -> DeviceLock:
    return DeviceLock(identity, threading.Event())


def started(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def queued(count: int) -> None:
    """Wait until so many wait for the device."""
    queue = runtime_directory() / "gpu-1.queue"
    ends = time.monotonic() + 10
    while len(list(queue.glob("[0-9]*"))) != count:
        assert time.monotonic() < ends
        time.sleep(0.001)


def test_it_is_host_wide_and_each_device_has_its_own(holder) -> None:
    taken, asking, other = threading.Event(), lock(), lock("gpu-2")

    def take() -> None:
        with asking.held():
            taken.set()

    thread = started(take)
    queued(1)
    assert not taken.wait(0.05)
    with other.held():
        pass
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert taken.wait(10)
    thread.join()
    assert (asking.waited > 0.04, other.waited) == (True, 0.0)


def test_a_long_wait_is_told_with_who_has_the_device_and_what_waits_sum_up_to(
    holder, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("workers.device_lock.LONG_SECONDS", 0.1)
    holder.send_signal(signal.SIGSTOP)
    ended = threading.Event()
    asking = DeviceLock("gpu-1", ended)

    def take() -> None:
        with pytest.raises(EnvironmentProblem), asking.held():
            pass

    waiting = started(take)
    while not caplog.messages:
        assert waiting.is_alive()
        time.sleep(0.01)
    assert asking.waits_for == caplog.messages[0]
    ended.set()
    waiting.join()
    assert asking.waits_for == "gpu-1 is in use by others, waiting for turns"
    assert asking.waited_since() == asking.waited > 0.1
    assert (asking.waits_for, asking.waited_since()) == ("", 0.0)
    assert caplog.messages == [f"gpu-1 is in use by process {holder.pid}, waiting for it"]


def test_it_is_free_when_its_holder_is_killed(holder) -> None:
    holder.kill()
    with lock().held():
        pass


def test_waiting_can_be_aborted(holder) -> None:
    abort = threading.Event()
    threading.Timer(0.05, abort.set).start()
    with pytest.raises(EnvironmentProblem, match="closed"), DeviceLock("gpu-1", abort).held():
        pass


def test_who_asks_first_has_it_first() -> None:
    order: list[int] = []

    def take(number: int) -> None:
        with lock().held():
            order.append(number)

    with lock().held():
        threads = []
        for number in range(4):
            threads.append(started(lambda number=number: take(number)))
            queued(number + 1)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


def test_the_place_of_a_dead_process_in_the_queue_is_given_up(holder) -> None:
    script = HOLDER.replace("sys.stdin", "open('/dev/null')")
    environment = {"TMPDIR": str(runtime_directory().parent), "PYTHONPATH": ":".join(sys.path)}
    dead = subprocess.Popen([sys.executable, "-c", script, "gpu-1"], env=environment)
    queued(1)
    dead.kill()
    dead.wait()
    holder.kill()
    with lock().held():
        pass
    queued(0)


def test_a_turn_goes_on_over_works_that_follow_at_once(monkeypatch) -> None:
    monkeypatch.setattr("workers.device_lock.KEPT_SECONDS", 60.0)
    monkeypatch.setattr("workers.device_lock.TURN_SECONDS", 60.0)
    first, order = lock(), []
    with first.held():
        order.append("first")

    def take() -> None:
        with lock().held():
            order.append("other")

    thread = started(take)
    queued(1)
    with first.held(), first.held():
        order.append("again")
    first.close()
    thread.join()
    assert order == ["first", "again", "other"]


def test_a_turn_that_is_over_ends_where_it_can_if_another_waits(monkeypatch) -> None:
    monkeypatch.setattr("workers.device_lock.KEPT_SECONDS", 0.1)
    monkeypatch.setattr("workers.device_lock.TURN_SECONDS", 0.0)
    first, order = lock(), []

    def take(name: str) -> None:
        with lock().held():
            order.append(name)

    with first.held():
        first.pause()
        order.append("alone")
        thread = started(lambda: take("second"))
        queued(1)
        order.append("works on")
        first.pause()
        order.append("first")
        other = started(lambda: take("third"))
        queued(1)
    with first.held():
        order.append("first again")
    first.close()
    for each in (thread, other):
        each.join()
    assert order == ["alone", "works on", "second", "first", "third", "first again"]


def test_a_turn_ends_when_nothing_is_done() -> None:
    first = lock()
    with first.held():
        pass
    began = time.monotonic()
    with lock().held():
        assert time.monotonic() - began >= KEPT_SECONDS / 2


@pytest.mark.parametrize("pause", [KEPT_SECONDS, 0.15])
def test_a_thread_with_patience_waits_for_a_pause_of_one_without(pause):
    device, taken = lock(), []

    def patient() -> None:
        with device.held(patience=60):
            taken.append(time.monotonic())

    with device.held(pause=pause):
        thread = started(patient)
        with device.held(patience=60):
            pass  # one that holds it need not wait for itself
    ended = time.monotonic()
    thread.join(30)
    assert taken[0] - ended >= 0.9 * pause


def test_patience_ends_though_there_is_no_pause():
    device, taken = lock(), threading.Event()

    def patient() -> None:
        with device.held(patience=0.001):
            taken.set()

    thread = started(patient)
    ends = time.monotonic() + 30
    while not taken.is_set() and time.monotonic() < ends:
        with device.held():
            pass
    thread.join(30)
    assert taken.is_set()


def test_shared_it_serves_other_threads_of_its_bench_and_no_other_bench() -> None:
    ours, others, taken = lock(), lock(), threading.Event()

    def use() -> None:
        with ours.held(patience=10.0):
            pass

    def take() -> None:
        with others.held():
            taken.set()

    with ours.shared():
        beside = started(use)
        beside.join(5)
        assert not beside.is_alive()
        waiting = started(take)
        queued(1)
        assert not taken.wait(2.5 * KEPT_SECONDS)
    assert taken.wait(10)
    waiting.join()
