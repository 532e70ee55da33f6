"""Launches and usage over a device's limits, each with its reason."""

from dataclasses import replace

import pytest

from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.plan import Binary, Build, CellPlan, KernelStep, MemsetStep, Plan, Usage
from tuner.space.limits import over_limit
from tuner.trial import Code, Infeasible, Stage

DEVICE = cuda_device(90)
STEP = KernelStep(entry="k", grid=(16, 1, 1), block=(256, 1, 1), arguments=("x",))
BUILD = Build(language="cuda", file="k.cu", source="", entries=("k",))


def plan(*steps):
    return Plan(
        builds=(BUILD,),
        cells=(Infeasible(reason="no"), *(CellPlan(build=0, steps=(step,)) for step in steps)),
    )


def binary(**usage):
    return Binary(
        build=BUILD.digest,
        code=b"",
        usage=(("k", Usage(**usage)),),
        symbols=(("k", "k"),),
        compile_seconds=0.1,
    )


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"block": (32, 32, 2)}, Code.THREADS, "32×32×2 = 2048 threads"),
        ({"block": (1, 1, 128)}, Code.THREADS, "128 threads along z"),
        ({"grid": (1, 65536, 1)}, Code.GRID, "65536 blocks along y"),
        ({"shared_bytes": 227 * 1024 + 1}, Code.SHARED_MEMORY, "232449 bytes"),
    ],
)
def test_geometry_is_judged_before_compilation(change, code, words):
    rejected = over_limit(plan(STEP, replace(STEP, **change)), DEVICE)
    assert rejected is not None
    assert (rejected.stage, rejected.code, rejected.shape) == (Stage.LIMITS, code, 2)
    assert words in rejected.detail
    assert DEVICE.name in rejected.detail


@pytest.mark.parametrize(
    ("usage", "code"),
    [
        ({"max_threads_per_block": 128}, Code.THREADS),
        ({"static_shared_bytes": 227 * 1024}, Code.SHARED_MEMORY),
        ({"registers": 255}, None),
        ({"registers": 128, "static_shared_bytes": 1024, "max_threads_per_block": 1024}, None),
        ({}, None),
    ],
)
def test_the_compilers_report_is_judged_after_it(usage, code):
    step = replace(STEP, shared_bytes=1024)
    rejected = over_limit(plan(step), DEVICE, [binary(**usage)])
    assert (rejected.code if rejected else None) == code


@pytest.mark.parametrize(
    ("taken", "given", "words"),
    [
        ((8,), (8,), None),
        (None, (8,), None),
        ((8,), (), None),
        ((8, 4), (8,), "k takes 2 parameters, but is passed 1: x"),
        ((8,), (4,), "k takes 8 bytes for x, but is passed 4"),
    ],
)
def test_arguments_are_the_kernels_parameters(taken, given, words):
    step = replace(STEP, argument_bytes=given)
    rejected = over_limit(plan(step), DEVICE, [binary(parameter_bytes=taken)])
    assert (rejected.detail if rejected else None) == words


def test_no_more_is_copied_to_a_variable_than_it_holds():
    compiled = replace(binary(), variable_bytes=(("table", 64),))
    cell = CellPlan(build=0, steps=(STEP,), variables=(("table", 64),))
    fits = Plan(builds=(BUILD,), cells=(cell,))
    assert over_limit(fits, DEVICE, [compiled]) is None
    longer = replace(fits, cells=(replace(cell, variables=(("table", 68),)),))
    rejected = over_limit(longer, DEVICE, [compiled])
    assert rejected.detail == "table has 64 bytes, but its constant argument has 68"


def test_registers_times_threads():
    wide = replace(STEP, block=(1024, 1, 1))
    assert over_limit(plan(wide), DEVICE, [binary(registers=64)]) is None
    rejected = over_limit(plan(wide), DEVICE, [binary(registers=65)])
    assert rejected is not None
    assert rejected.code is Code.REGISTERS


def test_a_device_that_tells_no_registers_vetoes_none():
    assert over_limit(plan(STEP), opencl_cpu(), [binary(registers=255)]) is None


def test_infeasible_cells_and_memsets_need_nothing():
    memset = MemsetStep(argument="x", byte=0)
    assert over_limit(plan(memset, STEP), DEVICE) is None
