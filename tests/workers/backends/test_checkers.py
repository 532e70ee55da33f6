"""What is launched under checkers, and what their reports say: recorded ones."""

from dataclasses import replace

import numpy as np
import pytest

from tests.workers.backends.fake_cuda import DirectDriver, fake_cuda, view
from tuner.plan import Binary, Build, CellPlan, KernelStep, MemsetStep, Scratch
from workers.backends.cuda import checkers
from workers.backends.cuda.checkers import (
    lacks_barriers,
    lacks_shared_memory,
    open_under_checker,
    read_compute_sanitizer,
)
from workers.backends.opencl.checkers import read_oclgrind
from workers.checkers.job import Job, job_format
from workers.devices.port import StagedBuffer, StagedValue
from workers.devices.staging import NULL, staged_scalar

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale+0x70
=========     by thread (0,0,0) in block (0,0,0)
=========     Access at 0x7f2a2fa00ffc is out of bounds
=========     and is 4 bytes before the nearest allocation at 0x7f2a2fa01000 of size 4,000 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale+0x70
=========     by thread (1,0,0) in block (0,0,0)
=========     Access at 0x7f2a2fa00ff8 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum+0x100 and Read access at sum+0x190 [32]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARNED = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Read access at sum+0x100 and Write access at sum+0x190
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at scale+0x30
=========     by thread (3,0,0) in block (0,0,0)
=========     Access to 0x7f2a2fa0100c
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at sum+0x80
=========     by thread (1,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (CLEAN, ()),
        (WARNED, ()),
        (MEMCHECK, ("Invalid __global__ write of size 4 bytes at scale+… (2 times)",)),
        (RACECHECK, ("Error: Race reported between Write access at sum+… and Read",)),
        (INITCHECK, ("Uninitialized __global__ memory read of size 4 bytes at scale",)),
        (SYNCCHECK, ("Barrier error detected. Divergent thread(s) in block. at sum",)),
    ],
)
def test_reports_of_compute_sanitizer(log, said):
    found = read_compute_sanitizer(log)
    assert found is not None
    assert len(found) == len(said)
    for got, wanted in zip(found, said, strict=True):
        assert got.replace("0x70", "…").startswith(wanted[:60])


@pytest.mark.parametrize("log", ["", "========= COMPUTE-SANITIZER\n", "Segmentation fault\n"])
def test_a_report_that_does_not_end_says_nothing(log):
    assert read_compute_sanitizer(log) is None


def test_reports_of_oclgrind():
    log = """
Invalid write of size 4 at global memory address 0x3000000000214
\tKernel: k
\tEntity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
\t  store float %.sink, float addrspace(1)* %arrayidx13
\tAt line 7 (column 3) of k.cl:
\t  out[n + 5] = 1;

Invalid write of size 4 at global memory address 0x3000000000218
\tKernel: k

Oclgrind: 2 errors generated - suppressing further errors
"""
    assert read_oclgrind("") == ()
    assert read_oclgrind(log) == ("Invalid write of size 4 at line 7 (2 times)",)


def test_what_oclgrind_cannot_interpret_is_no_finding_and_hides_none():
    gave_up = """
OCLGRIND FATAL ERROR (./src/plugins/Uninitialized.cpp:1805)
Unsupported instruction: freeze
"""
    found = (
        "\nInvalid read of size 4 at global memory address 0x30\n\tAt line 3 (column 1) of k.cl:\n"
    )
    assert read_oclgrind(gave_up + gave_up) is None
    assert read_oclgrind(found + gave_up) == ("Invalid read of size 4 at line 3",)


PLAIN = KernelStep(entry="k", grid=(1, 1, 1), block=(32, 1, 1), arguments=())
UNKNOWN = Binary(build="b", code=b"c", usage=(), symbols=(), compile_seconds=0.0)
BARE = replace(UNKNOWN, shares=False, synchronises=False)


@pytest.mark.parametrize(
    ("binary", "launch", "lack"),
    [
        (BARE, {}, "no shared memory"),
        (UNKNOWN, {}, ""),
        (BARE, {"shared_bytes": 4}, ""),
        (BARE, {"cluster": (2, 1, 1)}, ""),
    ],
)
def test_a_launch_lacks_shared_memory_where_it_certainly_has_none(binary, launch, lack):
    steps = (MemsetStep(argument="x", byte=0), PLAIN, replace(PLAIN, **launch))
    assert lacks_shared_memory(binary, steps) == lack


def test_code_lacks_barriers_where_it_certainly_has_none():
    assert lacks_barriers(BARE, (PLAIN,))
    assert not lacks_barriers(replace(BARE, synchronises=True), (PLAIN,))


def test_a_job_is_launched_once_with_all_kinds_of_arguments(tmp_path, monkeypatch):
    """Each step after the end of the one before, also where the plan launches it dependently."""
    cuda, runtime, _ = fake_cuda()
    runtime.deviceSynchronize = lambda: None
    driver, seen = DirectDriver(runtime), []

    def kernel(grid, block, table):
        places = view(table, 7, "u8").astype(int).tolist()
        pointers = [int(view(places[k], 1, "u8")[0]) for k in (0, 1, 2, 6)]
        out, x, work, null = pointers
        flag, half, pair = view(places[3], 1, "?")[0], view(places[4], 2), view(places[5], 3, "f4")
        seen.append((grid, bool(flag), half.tobytes(), pair.tolist(), null))
        view(out, 4, "f4")[:] += view(x, 4, "f4") + view(work, 4)

    driver.kernels["k_symbol"] = kernel
    driver.globals["table_symbol"] = runtime.malloc(16)
    monkeypatch.setattr(checkers, "import_cuda", lambda: type(cuda)(runtime, driver))
    monkeypatch.setattr(checkers, "select", lambda cuda, index: None)
    data = np.arange(4, dtype=np.float32)
    data.tofile(tmp_path / "x")
    (tmp_path / "code").write_bytes(b"image")

    def buffer(name, kind, **more):
        held = None if kind == "out" else str(tmp_path / "x")
        size = {"dtype": "float32", "shape": (4,), "strides": (1,), "size": 16, "align": 4}
        return StagedBuffer(name=name, kind=kind, contents=held, **size, **more)

    step = KernelStep(
        entry="k",
        grid=(3, 1, 1),
        block=(32, 1, 1),
        arguments=("out", "x", "work", "flag", "half", "pair", "null"),
    )
    memsets = (MemsetStep(argument="out", byte=0), MemsetStep(argument="work", byte=2))
    job = Job(
        build=Build(language="cuda", file="k.cu", source="", entries=("k",)),
        code=str(tmp_path / "code"),
        symbols=(("k", "k_symbol"), ("table", "table_symbol")),
        cell=CellPlan(
            build=0,
            steps=(*memsets, step, replace(step, cooperative=True), replace(step, dependent=True)),
            scratch=(Scratch(name="work", dtype="uint8", elements=4, align=1),),
        ),
        arguments=(
            buffer("out", "out"),
            buffer("x", "in"),
            buffer("numbers", "constant", symbol="table"),
            staged_scalar("flag", "bool", 1),
            staged_scalar("half", "bfloat16", -1.5),
            StagedValue(name="pair", data=np.array([1, 2, 3], np.float32).tobytes().hex()),
            StagedValue(name="null", data=NULL.hex()),
        ),
    )
    open_under_checker(0)(job_format().validate_json(job_format().dump_json(job)))
    assert seen == [((3, 1, 1), True, b"\xc0\xbf", [1, 2, 3], 0)] * 3
    assert view(driver.globals["table_symbol"], 4, "f4").tolist() == data.tolist()
    sums = [view(at, 4, "f4").tolist() for at in runtime.allocations]
    assert (3 * (data + 2)).tolist() in sums
