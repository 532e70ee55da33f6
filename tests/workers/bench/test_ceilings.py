"""What a device can do at most: measured here on the processor, compiled for GPUs, kept for all."""

from dataclasses import replace

import numpy as np
import pytest

from tests.workers.bench.test_device_bench import AFFINE, GOOD
from tests.workers.harness import Laboratory, supervisor
from tuner.ceilings import Ceilings
from tuner.plan import Binary, CellPlan, KernelStep
from tuner.trial import Measured, Rejected
from workers.backends.cuda.adapter import ceilings
from workers.backends.cuda.architectures import ARCHITECTURES, device_for
from workers.backends.cuda.compiler import open_compiler
from workers.backends.opencl import adapter as opencl
from workers.bench import ceilings as ceilings_module
from workers.bench import device_bench as bench_module
from workers.bench.ceilings import SIDE, compiled_ahead, measure_ceilings
from workers.bench.protocol import RunBurst
from workers.bench.supervisor import Supervisor
from workers.devices.port import StagedBuffer
from workers.devices.staging import staged_scalar

CEILINGS = Ceilings(copy_bytes_per_second=2.5e12, launch_ns=900.0, products=(("float32", 3.1e13),))


def test_a_copys_time_is_the_least_but_for_an_empty_launch():
    assert CEILINGS.least_ns(None) is None
    assert CEILINGS.least_ns(5_000_000) == pytest.approx(2000)
    assert CEILINGS.least_ns(5_000) == 900
    assert str(CEILINGS) == (
        "copies 2.5 TB/s, multiplies matrices at 31 Tflop/s (float32), an empty launch takes 0.9 µs"
    )


@pytest.mark.parametrize(
    "arch",
    [
        pytest.param(
            arch, marks=() if arch in (ARCHITECTURES[0], ARCHITECTURES[-1]) else pytest.mark.slow
        )
        for arch in ARCHITECTURES
    ],
)
def test_its_kernels_compile_for_every_gpu_without_spilling(arch):
    device = device_for(arch)
    compiled = open_compiler(device).compile(ceilings(device, SIDE).build)
    assert isinstance(compiled, Binary), compiled
    assert len(compiled.usage) == 4
    assert all(not usage.spill_bytes for _, usage in compiled.usage)


@pytest.fixture
def unmeasured(monkeypatch, tmp_path):
    """The device by a name under which nothing was measured."""
    describe = Supervisor.describe
    monkeypatch.setattr(Supervisor, "describe", lambda one: (describe(one)[0], tmp_path.name))


@pytest.mark.usefixtures("unmeasured")
def test_a_bench_measures_its_device_once_and_says_so(monkeypatch):
    asked = []

    def measured(*given):
        asked.append(given)
        return measure_ceilings(*given)

    monkeypatch.setattr(bench_module, "measure_ceilings", measured)
    found = []
    for _ in range(2):
        laboratory = Laboratory(AFFINE)
        assert isinstance(laboratory.outcome(GOOD), Measured)
        found.append(laboratory.prepared.ceilings)
        laboratory.close()
    assert len(asked) == 1
    assert found[0] == found[1]
    ceilings = found[0]
    assert 1e8 < ceilings.copy_bytes_per_second < 1e12
    assert 1 < ceilings.launch_ns < 1e7
    assert ceilings.products == ()
    assert "multiplies" not in str(ceilings)


def test_a_product_in_opencl_is_a_product(monkeypatch, tmp_path):
    """What only a GPU is asked for, on matrices that a processor multiplies in no time."""
    laboratory = Laboratory(AFFINE)
    device = replace(laboratory.device, is_cpu=False)
    kernels = opencl.ceilings(device, 64)
    server = supervisor(tmp_path)
    monkeypatch.setattr(ceilings_module, "SIDE", 64)
    compiled = compiled_ahead(device, known=False)((kernels.build,))
    assert not isinstance(compiled, Rejected), compiled
    try:
        found = measure_ceilings(server, replace(device, memory_bytes=1 << 24), lambda _: compiled)
        assert isinstance(found, Ceilings), found
        assert [dtype for dtype, _ in found.products] == ["float32"]
        module, n = server.load(compiled), 64
        arguments = [
            StagedBuffer(
                name=name,
                kind="out",
                dtype="float32",
                shape=(n * n,),
                strides=(1,),
                size=4 * n * n,
                align=256,
            )
            for name in "cab"
        ]
        case = server.stage([*arguments, staged_scalar("n", "int32", n)], 1)
        grid, block = kernels.products["float32"]
        names = ("c", "a", "b", "n")
        step = KernelStep(entry="product_float32", grid=grid, block=block, arguments=names)
        launchable = server.bind(module, CellPlan(build=0, steps=(step,)), case)
        shot = RunBurst(launchable=launchable, order=(0,), poison=0x3C, deadline=30.0, inspect=0)
        ((_, _, seen, _),) = server.run_bursts([shot])
        each = np.frombuffer(b"\x3c" * 4, np.float32)[0]
        product = np.frombuffer(seen.outputs["c"], np.float32)
        np.testing.assert_allclose(product, n * each * each, rtol=1e-5)
    finally:
        server.close()
        laboratory.close()


@pytest.mark.usefixtures("unmeasured")
def test_what_cannot_be_measured_is_a_note(monkeypatch):
    monkeypatch.setattr(bench_module, "measure_ceilings", lambda *_: "they do not compile")
    laboratory = Laboratory(AFFINE)
    laboratory.close()
    assert laboratory.prepared.ceilings is None
    assert not isinstance(laboratory.prepared.result, Rejected)
    assert "they do not compile" in laboratory.prepared.notes
