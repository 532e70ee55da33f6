import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.workers.harness import build, opencl_device
from tests.workers.test_process import alive, fork_server, wait_for
from tuner.errors import EnvironmentProblem
from tuner.trial import Code, Rejected, Stage
from workers.compilers import worker as compile_worker
from workers.compilers.protocol import decode_result, encode_result
from workers.compilers.worker import CompileWorker
from workers.devices.discover import find, list_devices
from workers.forking import ChildFailed
from workers.process import Child
from workers.scratch import runtime_directory

ONE = build("kernel void f(global int *a) { a[0] = 1; }", "f")
TWO = build("kernel void f(global int *a) { a[0] = 2; }", "f")
BAD = build("kernel void f(global int *a) { a[0] = absent; }", "f")
SLOW = build(
    "#define A(x) x x x x x x x x\n"
    "kernel void f(global float *a) { A(A(A(A(A(a[0] = sin(a[0]);))))) }",
    "f",
)


@pytest.fixture
def worker() -> Iterator[CompileWorker]:
    made = CompileWorker(opencl_device())
    yield made
    made.close()


def test_builds_come_back_in_order(worker) -> None:
    binaries = worker.compile([ONE, TWO])
    assert [binary.build for binary in binaries] == [ONE.digest, TWO.digest]


def test_the_first_failure_ends_the_job(worker) -> None:
    rejected = worker.compile([ONE, BAD, TWO])
    assert isinstance(rejected, Rejected)
    assert "absent" in rejected.detail
    assert isinstance(worker.compile([TWO]), tuple)


def test_a_slow_compile_is_cut_off_and_the_next_one_works(worker) -> None:
    worker.compile([ONE])
    rejected = worker.compile([SLOW], timeout=0.5)
    assert isinstance(rejected, Rejected)
    assert rejected.code == Code.COMPILE_TIMEOUT
    assert isinstance(worker.compile([TWO]), tuple)


def test_macros_that_fill_memory_are_cut_off_and_the_next_one_works(monkeypatch) -> None:
    monkeypatch.setattr(compile_worker, "MEMORY_BYTES", 240 << 20)
    tenfold = "".join(f"#define A{i + 1} {f'A{i} ' * 10}\n" for i in range(9))
    bomb = f"#define A0 +1\n{tenfold}kernel void f(global int *a) {{ a[0] = 0 A9; }}"
    with CompileWorker(opencl_device()) as worker:
        rejected = worker.compile([build(bomb, "f")])
        assert isinstance(rejected, Rejected)
        assert (rejected.stage, rejected.code) == (Stage.COMPILE, Code.OUT_OF_MEMORY)
        assert "MiB of memory where 240 are allowed" in rejected.detail
        assert isinstance(worker.compile([TWO]), tuple)


def test_a_compiler_that_is_killed_from_outside_costs_nothing(worker) -> None:
    worker.compile([ONE])
    os.kill(worker.pid, signal.SIGKILL)
    assert isinstance(worker.compile([TWO]), tuple)


def test_a_compiler_that_is_lost_with_its_fork_server_is_no_crash(worker, monkeypatch) -> None:
    send, lost = Child.send, []

    def losing(child, *given, **more):
        child.start()
        if len(lost) < 2:
            lost.append(fork_server(child.pid))
            os.kill(lost[-1], signal.SIGKILL)
        return send(child, *given, **more)

    monkeypatch.setattr(Child, "send", losing)
    with pytest.raises(ChildFailed, match="killed with its fork server"):
        worker.compile([ONE])
    assert isinstance(worker.compile([ONE]), tuple)
    assert len(set(lost)) == 2


def test_a_device_that_is_not_here_is_one_message() -> None:
    worker = CompileWorker(replace(opencl_device(), name="Imaginary 9000"))
    with pytest.raises(EnvironmentProblem, match="no OpenCL device named 'Imaginary 9000'"):
        worker.compile([ONE])
    worker.close()


def test_closing_leaves_nothing_behind(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = CompileWorker(opencl_device())
    worker.compile([ONE])
    pid = worker.pid
    assert list(runtime_directory().glob("compile-*"))
    worker.close()
    worker.close()
    assert wait_for(lambda: not alive(pid))
    assert not list(runtime_directory().glob("compile-*"))


def test_a_result_of_another_build_is_no_result(worker) -> None:
    (binary,) = worker.compile([ONE])
    text, blobs = encode_result(binary)
    assert decode_result(text, blobs, ONE) == replace(binary)
    with pytest.raises(ValueError, match="another build"):
        decode_result(text, blobs, TWO)
    with pytest.raises(ValueError, match="no valid result"):
        decode_result(b"[1, 2]", [], ONE)


def test_devices_are_found_by_a_child_and_problems_are_told(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/proc")
    cuda, opencl = find("cuda")[0], find("opencl")[0]
    assert opencl.device is not None
    assert opencl.device.backend == "opencl"
    assert cuda.device is not None or cuda.problem
    assert list_devices(("cuda", "opencl")) == (*find("cuda"), *find("opencl"))


def test_whoever_times_comes_before_whoever_compiles(worker) -> None:
    worker.ready()
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) > os.getpriority(os.PRIO_PROCESS, 0)
