"""The CUDA backend on a real GPU: buffers, checks, launches, failures and times.

Everything that leaves a device in a bad state runs in a child of its own.
"""

import math
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.rig import N, Rig, binary_of, buffer, kernel, outcome_in_child, used_bytes
from tuner.plan import CellPlan, MemsetStep, Scratch
from tuner.trial import Code
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.driver import TO_DEVICE, TO_HOST, import_cuda
from workers.comparison import Expected, compare
from workers.devices.port import (
    GUARD_BYTES,
    Damage,
    DeviceFailure,
    StagedValue,
)
from workers.devices.staging import NULL, staged_scalar
from workers.elements import dtype_name, numpy_dtype

pytestmark = pytest.mark.gpu

DOUBLE = """extern "C" __global__ void run(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}
"""


@pytest.fixture(scope="module")
def rig():
    with Rig() as rig:
        yield rig


@pytest.fixture
def doubling(rig, tmp_path):
    buffer_sets, data = rig.doubling(tmp_path)
    yield buffer_sets, data
    buffer_sets.release()


def launchable(rig, buffer_sets, source, step, **more):
    module = rig.device.load([binary_of(rig.device.device, source)])
    return rig.device.bind(module, CellPlan(build=0, steps=(step,), **more), buffer_sets)


def test_every_set_is_launched_restored_and_compared(rig, doubling, tmp_path):
    buffer_sets, data = doubling
    bound = launchable(rig, buffer_sets, DOUBLE, kernel(("out", "x", "n"), grid=(40, 1, 1)))
    want = rig.expected(tmp_path, 2.0 * data.astype(np.float64), rtol=1e-7)
    for poison in (0xFF, 0x00):
        buffer_sets.restore([0, 1, 2], poison)
        (nanoseconds,) = bound.burst((2, 0, 1))
        assert 500 < nanoseconds < 1e6
        for index in range(3):
            seen = buffer_sets.inspect(index, {"out": want})
            assert seen.damage is None
            assert seen.comparisons["out"].failures == 0
            assert seen.comparisons["out"].poisoned == 0
    buffer_sets.restore([1], 0x7F)
    assert buffer_sets.inspect(1, {"out": want}).comparisons["out"].poisoned == N
    assert buffer_sets.inspect(0, {"out": want}).comparisons["out"].poisoned == 0


def test_new_contents_keep_their_addresses(rig, doubling, tmp_path):
    buffer_sets, data = doubling
    bound = launchable(rig, buffer_sets, DOUBLE, kernel(("out", "x", "n"), grid=(40, 1, 1)))
    other = tmp_path / "other"
    (-data).tofile(other)
    buffer_sets.refill({"x": str(other)})
    buffer_sets.restore([2], 0xFF)
    bound.burst((2,))
    want = rig.expected(tmp_path, -2.0 * data.astype(np.float64), rtol=1e-7)
    assert buffer_sets.inspect(2, {"out": want}).comparisons["out"].failures == 0


@pytest.mark.parametrize(
    ("statement", "damage"),
    [
        ("out[-1] = 3.0f;", Damage(argument="out", where="front", offset=1)),
        ("out[n] = 3.0f;", Damage(argument="out", where="back", offset=1)),
        ("x[5] = -x[5];", Damage(argument="x", where="input", offset=23)),
        (
            f"reinterpret_cast<char*>(out)[-{GUARD_BYTES}] ^= 1;",
            Damage(argument="out", where="front", offset=GUARD_BYTES),
        ),
    ],
)
def test_damage_is_found(rig, doubling, statement, damage):
    buffer_sets, _ = doubling
    source = f'extern "C" __global__ void run(float* out, float* x, int n) {{ {statement} }}'
    bound = launchable(rig, buffer_sets, source, kernel(("out", "x", "n")))
    buffer_sets.restore([0, 1, 2], 0xFF)
    bound.burst((1,))
    found = buffer_sets.inspect(1, {}).damage
    assert (found.argument, found.where) == (damage.argument, damage.where)
    assert damage.offset <= found.offset <= damage.offset + 3
    assert buffer_sets.inspect(0, {}).damage is None
    buffer_sets.refill({})
    buffer_sets.restore([1], 0xFF)
    assert buffer_sets.inspect(1, {}).damage is None


@pytest.mark.parametrize("distance", [0, 5, 4 * N - 1, -1, 4 * N])
def test_a_changed_image_is_named_and_made_whole_again(rig, doubling, distance):
    buffer_sets, _ = doubling
    first, second = (buffer_sets.address(index, "x") for index in (0, 1))
    place = first - (second - first) + distance
    before, other = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
    runtime = import_cuda().runtime
    runtime.memcpy(before.ctypes.data, place, 1, TO_HOST)
    buffer_sets.refill({})
    other[0] = before[0] ^ 1
    runtime.memcpy(place, other.ctypes.data, 1, TO_DEVICE)
    with pytest.raises(DeviceFailure, match="what other launches are to find has changed"):
        buffer_sets.refill({})
    runtime.memcpy(other.ctypes.data, place, 1, TO_HOST)
    assert other[0] == before[0]


@pytest.mark.parametrize("align", [4, 16])
@pytest.mark.parametrize("place", [0, 3, 4, N // 2, N - 1])
def test_an_output_that_was_right_once_is_not_right_when_an_element_has_changed(
    rig, tmp_path, place, align
):
    data = np.random.default_rng(8).random(N, dtype=np.float32)
    buffer_sets = rig.stage(tmp_path, [buffer("out", "out", data, align=align)], sets=1)
    want = rig.expected(tmp_path, data.astype(np.float64), rtol=1e-7)
    wrong = data.copy()
    wrong[place] = -wrong[place]
    for output, failures in ((data, 0), (data, 0), (wrong, 1), (data, 0), (wrong, 1)):
        buffer_sets.restore([0], 0xFF)
        rig.write(buffer_sets, "out", output)
        assert buffer_sets.inspect(0, {"out": want}).comparisons["out"].failures == failures
    buffer_sets.release()


@pytest.mark.parametrize("align", [2, 4, 16, 64, 512])
def test_addresses_are_aligned_to_exactly_what_is_promised(rig, tmp_path, align):
    source = """extern "C" __global__ void run(long long* out, const char* x, const void* null) {
  out[0] = reinterpret_cast<long long>(x);
  out[1] = reinterpret_cast<long long>(null);
}"""
    buffer_sets = rig.stage(
        tmp_path,
        [
            buffer("out", "out", np.empty(2, np.int64)),
            buffer("x", "in", np.zeros(100, np.int8), align=align),
            StagedValue(name="null", data=NULL.hex()),
        ],
        sets=2,
    )
    bound = launchable(rig, buffer_sets, source, kernel(("out", "x", "null")))
    for index in range(2):
        buffer_sets.restore([index], 0)
        bound.burst((index,))
        address, null = np.frombuffer(buffer_sets.inspect(index, {}).outputs["out"], np.int64)
        assert address % (2 * align) == align
        assert null == 0
    buffer_sets.release()


def test_scratch_constants_memsets_and_dynamic_shared_memory(rig, tmp_path):
    source = """__constant__ float table[4];
namespace deep { template <int K> __global__ void run(float* out, float* work, int n) {
  extern __shared__ float kept[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = table[i % 4] + work[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = K * kept[n - 1 - i];
} }"""
    n = 25_000
    table = np.arange(4, dtype=np.float32)
    buffer_sets = rig.stage(
        tmp_path,
        [
            buffer("out", "out", np.empty(n, np.float32)),
            buffer("table", "constant", table),
            staged_scalar("n", "int32", n),
        ],
        sets=1,
    )
    entry = "deep::run<3>"
    step = kernel(("out", "work", "n"), entry=entry, block=(256, 1, 1), shared_bytes=4 * n)
    module = rig.device.load([binary_of(rig.device.device, source, entry)])
    cell = CellPlan(
        build=0,
        steps=(MemsetStep(argument="work", byte=0), step),
        scratch=(Scratch(name="work", dtype="float32", elements=n, align=4),),
    )
    bound = rig.device.bind(module, cell, buffer_sets)
    buffer_sets.restore([0], 0xFF)
    bound.burst((0,))
    out = np.frombuffer(buffer_sets.inspect(0, {}).outputs["out"], np.float32)
    np.testing.assert_array_equal(out, 3 * np.resize(table, n)[::-1])
    bound.release()
    buffer_sets.release()


def test_a_struct_arrives_as_it_was_laid_out(rig, tmp_path):
    source = """struct pair { int n; double x; float v[3]; };
extern "C" __global__ void run(double* out, const __grid_constant__ pair p, int last) {
  out[0] = p.n; out[1] = p.x; out[2] = p.v[2]; out[3] = last;
}"""
    packed = struct.pack("<i4xd3f4x", 7, 0.25, 1.0, 2.0, 3.5)
    buffer_sets = rig.stage(
        tmp_path,
        [
            buffer("out", "out", np.empty(4, np.float64)),
            StagedValue(name="p", data=packed.hex()),
            staged_scalar("last", "int32", -9),
        ],
        sets=2,
    )
    bound = launchable(rig, buffer_sets, source, kernel(("out", "p", "last")))
    buffer_sets.restore([0, 1], 0)
    bound.burst((1,))
    out = np.frombuffer(buffer_sets.inspect(1, {}).outputs["out"])
    assert out.tolist() == [7, 0.25, 3.5, -9]
    bound.release()
    buffer_sets.release()


def test_a_cooperative_launch_synchronises_its_grid(rig, tmp_path):
    source = """#include <cooperative_groups.h>
extern "C" __global__ void run(int* out, int n) {
  if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x;
  cooperative_groups::this_grid().sync();
  __shared__ int next;
  if (threadIdx.x == 0) next = out[(blockIdx.x + 1) % gridDim.x];
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) out[blockIdx.x] = next;
}"""
    blocks = 100
    buffer_sets = rig.stage(
        tmp_path,
        [
            buffer("out", "out", np.empty(blocks, np.int32)),
            staged_scalar("n", "int32", blocks),
        ],
        sets=1,
    )
    step = kernel(("out", "n"), grid=(blocks, 1, 1), cooperative=True)
    bound = launchable(rig, buffer_sets, source, step)
    buffer_sets.restore([0], 0xFF)
    bound.burst((0,))
    out = np.frombuffer(buffer_sets.inspect(0, {}).outputs["out"], np.int32)
    np.testing.assert_array_equal(out, (np.arange(blocks) + 1) % blocks)
    buffer_sets.release()


@pytest.mark.parametrize("mode", ["close", "exact", "ulp"])
@pytest.mark.parametrize(
    "dtype",
    [
        "float8_e4m3",
        "float8_e5m2",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int32",
        "uint64",
        "bool",
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_the_device_compares_as_the_supervisor_does(rig, tmp_path, dtype, mode, wide):
    rng = np.random.default_rng(3)
    count = 70_001
    kind = numpy_dtype(dtype)
    if dtype.startswith(("float", "bfloat")):
        want = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 4, count)
        want[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
        got = want * (1 + rng.standard_normal(count) * 2e-3)
        got[6:12] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30]
        with np.errstate(over="ignore"):  # the types of fewest bits end before 1e30
            got, want = got.astype(kind), want if wide else want.astype(kind)
        if wide:
            want = want.astype(np.float64)
    elif wide:
        pytest.skip("an oracle wider than whole numbers is one of floats")
    else:
        want = rng.integers(0, 2 if dtype == "bool" else 100, count).astype(kind)
        got = np.where(rng.random(count) < 0.01, np.roll(want, 1), want)
    poison = 0x41
    got[20:30] = np.frombuffer(bytes([poison]) * kind.itemsize, kind)[0]
    buffer_sets = rig.stage(tmp_path, [buffer("out", "out", got)], sets=1)
    path = tmp_path / "want"
    want.tofile(path)
    expected = Expected(
        path=str(path), dtype=dtype_name(want.dtype), mode=mode, rtol=1e-3, atol=1e-5, ulp=2
    )
    bounds = None
    if mode == "close" and wide:
        bounds = rng.random(count) * 1e-2
        bounds.tofile(tmp_path / "bounds")
        expected = replace(expected, bounds=str(tmp_path / "bounds"))
    buffer_sets.restore([0], poison)
    rig.write(buffer_sets, "out", got)
    device = buffer_sets.inspect(0, {"out": expected}).comparisons["out"]
    host = compare(got, want, expected, poison, bounds=bounds)
    assert device.failures == host.failures
    assert (device.unwritten, device.poisoned) == (host.unwritten, host.poisoned)
    if math.isfinite(host.error):
        assert device.error == pytest.approx(host.error, rel=1e-12)
    else:
        assert device.error == host.error
    assert (device.index, device.first) == (host.index, host.first)
    buffer_sets.release()


def test_a_candidate_that_asks_too_much_is_refused_and_the_device_lives(rig, doubling):
    buffer_sets, _ = doubling
    step = kernel(("out", "x", "n"), shared_bytes=232_448 + 1024)
    with pytest.raises(DeviceFailure) as failure:
        launchable(rig, buffer_sets, DOUBLE, step)
    assert (failure.value.code, failure.value.sticky) == (Code.SHARED_MEMORY, False)
    bounded = DOUBLE.replace("void run", "void __launch_bounds__(64) run")
    with pytest.raises(DeviceFailure) as failure:
        launchable(rig, buffer_sets, bounded, kernel(("out", "x", "n"), block=(128, 1, 1)))
    assert failure.value.code is Code.THREADS
    launchable(rig, buffer_sets, DOUBLE, kernel(("out", "x", "n"))).burst((0,))


def test_a_copy_runs_at_the_speed_of_memory(rig, tmp_path):
    source = """extern "C" __global__ void run(float4* out, const float4* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}"""
    n = 1 << 22
    data = np.zeros(4 * n, np.float32)
    arguments = [
        buffer("out", "out", data, align=16),
        buffer("x", "in", data, align=16),
        staged_scalar("n", "int32", n),
    ]
    rotation = rig.device.rotation(2 * data.nbytes, "cold", 20, 100)
    buffer_sets = rig.stage(tmp_path, arguments, sets=rotation.sets)
    bound = launchable(
        rig,
        buffer_sets,
        source,
        kernel(("out", "x", "n"), grid=(n // 256, 1, 1), block=(256, 1, 1)),
    )
    order = tuple(range(rotation.sets))
    times = [bound.burst(order)[0] for _ in range(6)][1:]
    bandwidth = 2 * data.nbytes / min(times)
    print(f"copy of {2 * data.nbytes >> 20} MiB: {bandwidth:.0f} GB/s, samples {times}")
    assert 200 < bandwidth < 1.05 * 8000
    assert max(times) < 1.1 * min(times)
    buffer_sets.release()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("out[(long long)n << 40] = 1.0f;", Code.ILLEGAL_ADDRESS),
        ("*reinterpret_cast<int*>(reinterpret_cast<char*>(out) + 1) = 1;", Code.ILLEGAL_ADDRESS),
        ("__trap();", Code.TRAP),
        ("while (reinterpret_cast<volatile float*>(out)[0] != 1e30f) {}", Code.HANG),
    ],
)
def test_failures_are_told_apart_and_leave_nothing_behind(tmp_path, statement, code):
    before = used_bytes()
    source = f'extern "C" __global__ void run(float* out, const float* x, int n) {{ {statement} }}'
    failure = outcome_in_child(tmp_path, source, deadline=2.0)
    assert (failure.code, failure.sticky) == (code, True)
    assert outcome_in_child(tmp_path, DOUBLE, deadline=2.0) is None
    assert used_bytes() - before < 64 << 20


def test_devices_describe_themselves_like_the_table(rig):
    device = rig.device.device
    assert device.backend == "cuda"
    assert device.compute_capability >= 80
    assert device.memory_bytes > 1 << 30
    assert open_compiler(device)
    assert Path("/", rig.device.identity).name == rig.device.identity


def test_a_burst_waits_for_no_delay_of_the_host(rig, doubling):
    buffer_sets, _ = doubling
    bound = launchable(rig, buffer_sets, DOUBLE, kernel(("out", "x", "n"), grid=(40, 1, 1)))
    bound.burst((0, 1, 2))
    (late,) = bound.burst((0, 1, 2), lambda: time.sleep(0.005))
    assert late < 1e5
