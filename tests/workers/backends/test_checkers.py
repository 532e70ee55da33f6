"""What the checkers' reports say: recorded ones of compute-sanitizer, read without it."""

from dataclasses import replace

import pytest

from tuner.plan import Binary, KernelStep, MemsetStep
from workers.backends.cuda.checkers import (
    lacks_barriers,
    lacks_shared_memory,
    read_compute_sanitizer,
)
from workers.backends.opencl.checkers import read_oclgrind

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
