import math
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.backends.fake_cuda import DEVICE, binary, fake_cuda, view
from tuner.backends.cuda import CHECKS_FOLDER
from tuner.plan import CellPlan, KernelStep, MemsetStep, Scratch
from tuner.trial import Code
from workers.backends.cuda.checks import WORST, Arguments, Checks, worst_of
from workers.backends.cuda.compiler import NvrtcCompiler
from workers.backends.cuda.device import rotation_for
from workers.backends.cuda.driver import classified, described
from workers.backends.cuda.launch import (
    CudaLaunchable,
    CudaModule,
    LateWork,
    warm_up_ns,
)
from workers.backends.cuda.memory import CudaBufferSets
from workers.backends.cuda.pinned import PinnedFiles
from workers.backends.cuda.slab import laid_out
from workers.backends.cuda.streams import Streams
from workers.comparison import Expected
from workers.devices.port import (
    GUARD_BYTES,
    Damage,
    DeviceFailure,
    OtherContents,
    OwnInputs,
    StagedBuffer,
    StagedValue,
    Variation,
)
from workers.devices.staging import NULL, packed, staged_scalar

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

N = 64


SMALL = replace(DEVICE, l2_bytes=1 << 16)
"""Its cache is swept in no time."""


@pytest.fixture(scope="module", autouse=True)
def checks_folder(tmp_path_factory):
    """Where the first test leaves the compiled checks to the others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(CHECKS_FOLDER, str(tmp_path_factory.mktemp("checks")))
        yield


class Rig:
    """A case of one kernel, ``double``: out = 2 * in, scratch = in, with a scalar and a null."""

    def __init__(self, folder, sets=3, kinds=(), varies=None, **more):
        self.folder = folder
        self.cuda, self.runtime, self.driver = fake_cuda()
        self.driver.kernels["double"] = self.double
        self.driver.kernels["spoil"] = self.spoil
        self.streams = Streams(self.cuda)
        self.pinned = PinnedFiles(self.cuda, self.streams.run)
        self.checks = Checks(self.cuda, SMALL, self.streams, self.pinned)
        self.precise_enough = len(self.runtime.allocations)
        self.data = np.arange(N, dtype=np.float32)
        self.buffer_sets = CudaBufferSets(
            self.cuda,
            self.checks,
            self.pinned,
            [
                self.buffer("out", "out"),
                self.buffer("x", "in", self.file("x", self.data), varies=varies),
                staged_scalar("n", "int32", N),
                StagedValue(name="nothing", data=NULL.hex()),
                *more.pop("arguments", ()),
            ],
            sets,
        )
        self.launched = []
        self.module = CudaModule(self.cuda, [binary("double", "spoil")])

    def file(self, name, data):
        path = self.folder / name
        data.tofile(path)
        return str(path)

    def buffer(self, name, kind, contents=None, align=4, **more):
        return StagedBuffer(
            name=name,
            kind=kind,
            dtype="float32",
            shape=(N,),
            strides=(1,),
            size=4 * N,
            align=align,
            contents=contents,
            **more,
        )

    def bind(self, *steps, scratch=()):
        cell = CellPlan(build=0, steps=steps, scratch=scratch)
        return CudaLaunchable(self.cuda, DEVICE, self, self.module, cell, self.buffer_sets)

    def time(self, graph, begins, *, cold, persists):
        self.reset = persists
        for action in self.runtime.graphs[graph]:
            action()
        return 1000.0 * len(self.runtime.graphs[graph]), 0.0

    def double(self, grid, block, table):
        out, x, n, nothing = (int(self.driver.argument(table, k)) for k in range(4))
        assert nothing == 0
        view(out, n & 0xFFFFFFFF, "f4")[:] = 2 * view(x, N, "f4")
        self.launched.append(out)

    def spoil(self, grid, block, table):
        place = int(self.driver.argument(table, 0))
        offset = int(self.driver.argument(table, 1))
        view(place + offset, 1)[0] ^= 0xFF


def test_the_checks_are_compiled_once_for_all_children_of_a_bench(tmp_path, monkeypatch):
    compiled, compile_one = [], NvrtcCompiler.compile
    monkeypatch.setenv(CHECKS_FOLDER, str(tmp_path / "not there yet"))
    monkeypatch.setattr(
        NvrtcCompiler, "compile", lambda *given: (compiled.append(1), compile_one(*given))[1]
    )
    for _ in range(2):
        Rig(tmp_path)
    assert len(compiled) == 1


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def step(entry="double", arguments=("out", "x", "n", "nothing"), **more):
    return KernelStep(
        entry=entry, grid=more.pop("grid", (1, 1, 1)), block=(64, 1, 1), arguments=arguments, **more
    )


def want(rig, values, **more):
    path = rig.file(f"want-{more}", values)
    return {"out": Expected(path=path, dtype=str(values.dtype), mode="close", **more)}


def test_a_launch_is_restored_run_and_compared_on_every_set(rig):
    launchable = rig.bind(step())
    oracle = want(rig, 2.0 * rig.data.astype(np.float64), rtol=1e-6)
    rig.buffer_sets.restore([0, 1, 2], 0xAB)
    assert launchable.burst((2, 0, 1, 2)) == (1000.0,)
    assert len(set(rig.launched)) == 3
    for index in range(3):
        seen = rig.buffer_sets.inspect(index, oracle)
        assert (seen.damage, seen.outputs) == (None, {})
        assert seen.comparisons["out"].failures == 0


def test_all_shared_memory_is_spoiled_before_a_launch(rig):
    spoiled = []
    rig.driver.kernels["spoil_shared"] = lambda grid, block, table: spoiled.append(
        (grid, int(rig.driver.argument(table, 0)))
    )
    rig.buffer_sets.restore([0], 1)
    assert spoiled == [((2 * DEVICE.multiprocessors, 1, 1), DEVICE.max_shared_bytes_per_block // 4)]
    asked = [value for _, _, value in rig.driver.attributes]
    assert DEVICE.max_shared_bytes_per_block in asked


def test_a_shape_that_takes_less_shared_memory_leaves_a_kernel_prepared_for_more(rig):
    most, least = (rig.bind(step(shared_bytes=size)) for size in (100_000, 60_000))
    rig.buffer_sets.restore([0, 1, 2], 1)
    assert least.burst((0,)) == most.burst((1, 2)) == (1000.0,)


def test_an_output_that_was_not_written_holds_the_poison(rig):
    rig.buffer_sets.restore([1], 0xAB)
    seen = rig.buffer_sets.inspect(1, want(rig, rig.data + 1, atol=1e-3))
    assert seen.comparisons["out"].failures == N
    assert seen.comparisons["out"].unwritten == N


def test_only_the_named_sets_are_restored(rig):
    launchable = rig.bind(step())
    rig.buffer_sets.restore([0, 1, 2], 1)
    launchable.burst((0, 1, 2))
    rig.buffer_sets.restore([0, 2], 1)
    unwritten = [
        rig.buffer_sets.inspect(index, want(rig, rig.data + 9)).comparisons["out"].unwritten
        for index in range(3)
    ]
    assert unwritten == [N, 0, N]


def test_outputs_without_oracle_travel(rig):
    rig.buffer_sets.restore([0], 0x11)
    assert rig.buffer_sets.inspect(0, {}).outputs == {"out": b"\x11" * 4 * N}
    unordered = {"out": Expected(path="", dtype="float32", mode="unordered")}
    assert rig.buffer_sets.inspect(0, unordered).outputs.keys() == {"out"}


@pytest.mark.parametrize(
    ("argument", "offset", "damage"),
    [
        ("out", -1, Damage(argument="out", where="front", offset=1)),
        ("out", -GUARD_BYTES, Damage(argument="out", where="front", offset=GUARD_BYTES)),
        ("out", 4 * N, Damage(argument="out", where="back", offset=1)),
        ("x", 4 * N + 7, Damage(argument="x", where="back", offset=8)),
        ("x", 5, Damage(argument="x", where="input", offset=5)),
    ],
)
def test_damage_is_found_and_named(tmp_path, argument, offset, damage):
    rig = Rig(tmp_path, arguments=[staged_scalar("at", "int64", offset)])
    launchable = rig.bind(step("spoil", (argument, "at")))
    rig.buffer_sets.restore([0, 1, 2], 0)
    launchable.burst((1,))
    assert rig.buffer_sets.inspect(0, {}).damage is None
    assert rig.buffer_sets.inspect(1, {}).damage == damage
    rig.buffer_sets.refill({})
    rig.buffer_sets.restore([1], 0)
    assert rig.buffer_sets.inspect(1, {}).damage is None


@pytest.mark.parametrize(("argument", "offset"), [("out", 3), ("out", -1), ("x", 0), ("work", 9)])
def test_a_write_to_an_idle_set_is_found_and_named(tmp_path, argument, offset):
    rig = Rig(tmp_path, arguments=[staged_scalar("at", "int64", offset)])
    work = Scratch(name="work", dtype="float16", elements=100, align=64)
    launchable = rig.bind(step("spoil", (argument, "at")), scratch=(work,))
    rig.buffer_sets.restore([0, 1, 2], 0xAB)
    launchable.burst((2,))
    assert rig.buffer_sets.touched([0, 1]) is None
    damage = rig.buffer_sets.touched([0, 1, 2])
    assert (damage.argument, damage.where) == (argument, "idle")


def test_an_output_with_gaps_travels_whole(tmp_path):
    gapped = StagedBuffer(
        name="gapped",
        kind="out",
        dtype="float32",
        shape=(4, 5),
        strides=(8, 1),
        size=4 * 29,
        align=4,
    )
    rig = Rig(tmp_path, arguments=[gapped])
    rig.buffer_sets.restore([0], 0x22)
    oracle = {"gapped": Expected(path="", dtype="float32", mode="close")}
    assert rig.buffer_sets.inspect(0, oracle).outputs["gapped"] == b"\x22" * 4 * 29


def test_scratch_is_guarded_poisoned_and_freed(tmp_path):
    rig = Rig(tmp_path, arguments=[staged_scalar("at", "int64", -3)])
    rig.buffer_sets.restore([0], 0)
    assert rig.buffer_sets.inspect(0, {}).damage is None
    before = len(rig.runtime.allocations)
    work = Scratch(name="work", dtype="float16", elements=100, align=64)
    launchable = rig.bind(step("spoil", ("work", "at")), scratch=(work,))
    rig.buffer_sets.restore([0, 1, 2], 3)
    launchable.burst((2,))
    assert rig.buffer_sets.inspect(2, {}).damage == Damage(argument="work", where="front", offset=3)
    launchable.release()
    assert len(rig.runtime.allocations) == before


def test_refill_changes_contents_at_the_same_addresses(rig):
    launchable = rig.bind(step())
    other = rig.data[::-1].copy()
    rig.buffer_sets.refill({"x": rig.file("other", other)})
    rig.buffer_sets.restore([0], 0)
    launchable.burst((0,))
    seen = rig.buffer_sets.inspect(0, want(rig, 2 * other, atol=1e-6))
    assert (seen.damage, seen.comparisons["out"].failures) == (None, 0)


def test_one_set_holds_other_contents_for_one_burst(rig):
    launchable = rig.bind(step())
    other = rig.data[::-1].copy()
    mixed = OtherContents(set_index=1, contents={"x": rig.file("other", other)})
    ordinary, changed = want(rig, 2 * rig.data, atol=1e-6), want(rig, 2 * other, atol=1e-7)
    for held, sets, expected in (
        (None, (0, 1, 2), ordinary),
        (mixed, (1,), changed),
        (None, (0, 1, 2), ordinary),
    ):
        rig.buffer_sets.restore([0, 1, 2], 0, held)
        launchable.burst((2, 1, 0))
        for index in sets:
            seen = rig.buffer_sets.inspect(index, expected)
            assert (seen.damage, seen.comparisons["out"].failures) == (None, 0)


@pytest.mark.parametrize("kind", ["mixed", "rotated", "nudged"])
def test_each_set_holds_inputs_of_its_own_for_one_burst(tmp_path, kind):
    rig = Rig(tmp_path, varies=Variation(kind=kind))
    launchable = rig.bind(step())
    own = OwnInputs(seed=7, set_index=1)
    rig.buffer_sets.restore([0, 1, 2], 0, own)
    launchable.burst((2, 1, 0))
    seen = rig.buffer_sets.inspect(1, {})
    assert seen.damage is None, "the image holds the same"
    found = [view(rig.buffer_sets.address(index, "x"), N, "f4").copy() for index in range(3)]
    assert np.array_equal(np.frombuffer(seen.outputs["out"], "f4"), 2 * found[1])
    assert not any(np.array_equal(a, b) for a, b in combinations([rig.data, *found], 2))
    near = 0.125 if kind == "mixed" else 1e-6
    assert all(np.allclose(np.sort(one), np.sort(rig.data), rtol=near) for one in found)
    rig.buffer_sets.restore([0, 1, 2], 0)
    launchable.burst((0, 1, 2))
    for index in range(3):
        seen = rig.buffer_sets.inspect(index, want(rig, 2 * rig.data, atol=1e-6))
        assert (seen.damage, seen.comparisons["out"].failures) == (None, 0)


def test_a_launch_that_changes_what_others_find_is_refused_and_the_image_mended(rig, monkeypatch):
    copies = []
    copy = rig.pinned.copy
    monkeypatch.setattr(rig.pinned, "copy", lambda *given: (copies.append(1), copy(*given))[1])
    contents = {"x": rig.file("x", rig.data)}
    rig.buffer_sets.refill(contents)
    assert not copies
    first, second = (rig.buffer_sets.address(index, "x") for index in (0, 1))
    image = first - (second - first)
    mixed = OtherContents(set_index=1, contents=contents)
    for changed in (image + 7, image - 1):
        for finds in (
            partial(rig.buffer_sets.restore, [0, 1], 0, mixed),
            partial(rig.buffer_sets.refill, contents),
        ):
            before = int(view(changed, 1)[0])
            view(changed, 1)[0] ^= 0x10
            with pytest.raises(
                DeviceFailure, match="what other launches are to find has changed"
            ) as refused:
                finds()
            assert refused.value.code is Code.OUT_OF_BOUNDS
            assert int(view(changed, 1)[0]) == before
            rig.buffer_sets.refill(contents)
            assert len(copies) == 1, "mended once, and by whom it is found"
            copies.clear()


def test_guards_are_watched_where_nothing_is_an_input(rig):
    alone = CudaBufferSets(rig.cuda, rig.checks, rig.pinned, [rig.buffer("out", "out")], 2)
    first, second = (alone.address(index, "out") for index in (0, 1))
    view(first - (second - first) - 1, 1)[0] ^= 0x10
    with pytest.raises(DeviceFailure, match="what other launches are to find has changed"):
        alone.refill({})
    alone.refill({})


def test_an_oracle_comes_only_for_outputs_that_it_was_not_compared_with(rig, monkeypatch):
    copies = []
    copy = rig.pinned.copy
    monkeypatch.setattr(rig.pinned, "copy", lambda *given: (copies.append(1), copy(*given))[1])
    launchable, right, other = (
        rig.bind(step()),
        want(rig, 2 * rig.data),
        want(rig, rig.data + 9, ulp=1),
    )

    def failures(poison, expected, spoiled=None):
        copies.clear()
        rig.buffer_sets.restore([0, 1], poison)
        launchable.burst((0, 1))
        if spoiled is not None:
            view(rig.buffer_sets.address(1, "out") + spoiled, 1)[0] ^= 0x40
        found = rig.buffer_sets.inspect(1, expected).comparisons["out"].failures
        return found, len(copies)

    assert failures(1, right) == (0, 1)
    assert failures(1, right) == (0, 0)
    assert failures(1, right, spoiled=4 * N - 1) == (1, 1)
    assert failures(1, right) == (0, 0)
    assert failures(2, right) == (0, 1)
    assert failures(2, other)[1] == 1
    assert failures(2, other)[0] > 0


def test_constants_reach_the_module_and_follow_a_refill(tmp_path):
    table = np.linspace(0, 1, N, dtype=np.float32)
    path = tmp_path / "table"
    table.tofile(path)
    constant = StagedBuffer(
        name="table",
        kind="constant",
        dtype="float32",
        shape=(N,),
        strides=(1,),
        size=4 * N,
        align=4,
        contents=str(path),
        symbol="lookup",
    )
    rig = Rig(tmp_path, arguments=[constant])
    place = np.zeros(N, np.float32)
    rig.driver.globals["lookup"] = place.ctypes.data
    launchable = rig.bind(step())
    launchable.burst((0,))
    np.testing.assert_array_equal(place, table)
    rig.buffer_sets.refill({"table": rig.file("table2", table + 1)})
    launchable.burst((0,))
    np.testing.assert_array_equal(place, table + 1)


def test_launchables_of_one_module_each_have_their_own_constants(tmp_path):
    rig = Rig(tmp_path)
    place = np.zeros(N, np.float32)
    rig.driver.globals["lookup"] = place.ctypes.data
    bound = []
    for value in (1, 2):
        path = rig.file(f"table{value}", np.full(N, value, np.float32))
        table = rig.buffer("table", "constant", path, symbol="lookup")
        buffers = CudaBufferSets(
            rig.cuda, rig.checks, rig.pinned, [*rig.buffer_sets.buffers.values(), table], 1
        )
        cell = CellPlan(build=0, steps=(step(arguments=("out", "x", "out", "out")),))
        rig.driver.kernels["double"] = lambda grid, block, table: None
        bound.append(CudaLaunchable(rig.cuda, DEVICE, rig, rig.module, cell, buffers))
    for number in (0, 1, 0):
        bound[number].burst((0,))
        assert set(place) == {number + 1}


def test_a_constant_that_the_module_lacks_is_a_failure_and_leaks_nothing(tmp_path):
    path = tmp_path / "table"
    np.zeros(N, np.float32).tofile(path)
    rig = Rig(tmp_path, arguments=[])
    constant = rig.buffer("table", "constant", str(path), symbol="lookup")
    rig.buffer_sets.buffers["table"] = constant
    before = len(rig.runtime.allocations)
    with pytest.raises(DeviceFailure) as failure:
        rig.bind(step())
    assert failure.value.code is Code.LAUNCH_FAILED
    assert len(rig.runtime.allocations) == before


def test_memsets_are_launched_in_order(rig):
    launchable = rig.bind(step(), MemsetStep(argument="out", byte=7))
    launchable.burst((1,))
    assert rig.buffer_sets.inspect(1, {}).outputs["out"] == b"\x07" * 4 * N


def test_graphs_are_reused_and_bounded(rig):
    own = len(rig.runtime.graphs)
    launchable = rig.bind(step())
    launchable.burst((0,))
    number = next(rig.runtime.numbers)
    launchable.burst((0,))
    assert next(rig.runtime.numbers) == number + 1
    for length in range(2, 9):
        launchable.burst((0,) * length)
    assert len(rig.runtime.graphs) == own + 4
    launchable.release()
    assert len(rig.runtime.graphs) == own


def test_the_harness_keeps_the_graphs_of_its_own_launches_and_not_too_many(rig):
    rig.checks.busy(1, 1)
    own = len(rig.runtime.graphs)
    rig.checks.busy(1, 1)
    assert len(rig.runtime.graphs) == own
    for nanoseconds in range(2, 100):
        rig.checks.busy(nanoseconds, 1)
    assert len(rig.runtime.graphs) == 32
    rig.checks.close()
    assert not rig.runtime.graphs


def test_persisting_lines_are_reset_once_and_only_for_code_that_can_make_them(rig):
    rig.bind(step()).burst((0,))
    assert not rig.reset
    rig.module.persists = True
    launchable = rig.bind(step())
    launchable.burst((0,))
    assert rig.reset
    launchable.burst((0,))
    assert not rig.reset


def test_a_refused_launch_is_a_failure_and_leaves_the_stream_usable(rig):
    launchable = rig.bind(step())
    rig.driver.refused = 701
    with pytest.raises(DeviceFailure) as failure:
        launchable.burst((0,))
    assert (failure.value.code, failure.value.sticky) == (Code.REGISTERS, False)
    assert rig.runtime.capturing is None
    rig.driver.refused = None
    assert launchable.burst((0,))


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        ({"grid": (1, 70_000, 1)}, Code.GRID),
        ({"shared_bytes": 300_000}, Code.SHARED_MEMORY),
        ({"entry": "absent"}, Code.LAUNCH_FAILED),
    ],
)
def test_launches_over_a_limit_are_refused_when_bound(rig, launch, code):
    rig.module.symbols[0]["absent"] = "absent"
    before = len(rig.runtime.allocations)
    with pytest.raises(DeviceFailure) as failure:
        rig.bind(step(**launch))
    assert failure.value.code is code
    assert len(rig.runtime.allocations) == before


def test_a_block_beyond_the_kernels_registers_is_refused(rig):
    rig.driver.most_threads = 32
    with pytest.raises(DeviceFailure, match="64 threads; double can have 32"):
        rig.bind(step())


def test_dynamic_shared_memory_is_asked_for(rig):
    rig.bind(step(shared_bytes=100_000))
    assert [value for _, _, value in rig.driver.attributes][-1] == 100_000


def test_releasing_everything_leaves_no_memory(tmp_path):
    rig = Rig(tmp_path)
    launchable = rig.bind(step())
    launchable.burst((0,))
    launchable.release()
    rig.module.release()
    rig.buffer_sets.release()
    rig.pinned.close()
    rig.checks.close()
    assert not rig.runtime.allocations


def test_pinned_files_leave_in_the_order_of_use(tmp_path):
    cuda, runtime, _ = fake_cuda()
    pinned = PinnedFiles(cuda, 0, capacity=2500)
    place = runtime.malloc(1000)
    for name in "abaca":
        path = tmp_path / name
        path.write_bytes(name.encode() * 1000)
        pinned.copy(str(path), place)
        assert view(place, 1000).tobytes() == name.encode() * 1000
    assert len(runtime.allocations) == 3
    with pytest.raises(FileNotFoundError):
        pinned.size(str(tmp_path / "b2"))
    pinned.close()
    assert len(runtime.allocations) == 1


def test_full_pinned_memory_is_used_again_rather_than_freed(tmp_path):
    cuda, runtime, _ = fake_cuda()
    allocated, allocate = [], runtime.hostAlloc
    runtime.hostAlloc = lambda size, flags: (allocated.append(size), allocate(size, flags))[1]
    pinned = PinnedFiles(cuda, 0, capacity=2500)
    place = runtime.malloc(1000)
    for name in "abcdabcd":
        path = tmp_path / name
        path.write_bytes(name.encode() * 1000)
        pinned.copy(str(path), place)
        assert view(place, 1000).tobytes() == name.encode() * 1000
    assert allocated == [1000, 1000]
    pinned.close()


def test_the_pinned_memory_of_a_forgotten_file_serves_others_that_fit(tmp_path):
    cuda, runtime, _ = fake_cuda()
    pinned = PinnedFiles(cuda, 0, capacity=2500)
    place = runtime.malloc(1001)
    for name, size in (("a", 1000), ("b", 400), ("c", 1000), ("d", 1001)):
        path = tmp_path / name
        path.write_bytes(name.encode() * size)
        assert pinned.size(str(path)) == size
        pinned.copy(str(path), place)
        assert view(place, min(size, 1000)).tobytes() == name.encode() * min(size, 1000)
        pinned.forget([str(path)])
    assert len(runtime.allocations) == 3  # a's, which b and c use, and d's
    pinned.close()
    assert len(runtime.allocations) == 1


def test_released_buffers_leave_their_pinned_memory_to_others(tmp_path):
    rig = Rig(tmp_path)
    rig.bind(step()).burst((0,))
    held = len(rig.runtime.allocations)
    rig.buffer_sets.release()
    released = len(rig.runtime.allocations)
    assert released < held
    other = tmp_path / "other"
    other.write_bytes(b"1")
    assert rig.pinned.size(str(other)) == 1
    assert len(rig.runtime.allocations) == released


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 10).map(lambda e: 1 << e)), max_size=6),
    st.integers(0, 5),
)
def test_buffers_are_aligned_exactly_and_never_closer_than_their_guards(sizes, set_index):
    layout = laid_out([(str(k), size, align) for k, (size, align) in enumerate(sizes)])
    start = layout.unit * 3 + set_index * layout.stride
    end = 0
    for name, (size, align) in zip(layout.offsets, sizes, strict=True):
        address = start + layout.offsets[name]
        assert address % align == 0
        assert address % (2 * align) == align
        assert layout.offsets[name] - end >= GUARD_BYTES
        end = layout.offsets[name] + size
    assert not sizes or layout.stride - end >= GUARD_BYTES
    assert layout.stride % 16 == 0
    covered = sorted((s.offset, s.length) for _, _, s in layout.guards())
    covered += [
        (layout.offsets[name], size) for name, (size, _) in zip(layout.offsets, sizes, strict=True)
    ]
    place = 0
    for offset, length in sorted(covered):
        assert offset == place
        place += length


def test_scalars_are_packed_in_their_own_type():
    assert packed("int32", [-1]) == b"\xff\xff\xff\xff"
    assert packed("float32", [1e-6]) == np.float32(1e-6).tobytes()
    assert packed("bfloat16", [1.0]) == b"\x80\x3f"
    assert packed("float8_e4m3", [1.0]) == b"\x38"
    assert packed("bool", [1]) == b"\1"
    assert packed("float64", [0.5]) == np.float64(0.5).tobytes()
    assert packed("uint64", [1, 2**63 + 1]) == b"\1" + bytes(7) + b"\1" + bytes(6) + b"\x80"


def test_a_struct_is_passed_by_its_bytes(tmp_path):
    rig = Rig(tmp_path, arguments=[StagedValue(name="pair", data="0102030405060708090a0b0c")])
    seen = []
    rig.driver.kernels["double"] = lambda grid, block, table: seen.append(
        view(int(view(table + 8, 1, "u8")[0]), 12).tobytes()
    )
    rig.bind(step(arguments=("out", "pair"))).burst((2,))
    assert seen == [bytes(range(1, 13))]


def test_a_key_is_returned_besides_its_own_comparison(rig):
    oracle = want(rig, 2.0 * rig.data.astype(np.float64), rtol=1e-6)
    keyed = {"out": replace(oracle["out"], returned=True)}
    rig.buffer_sets.restore([0], 1)
    assert rig.buffer_sets.inspect(0, keyed).outputs.keys() == {"out"}


def test_arguments_point_at_their_values():
    arguments = Arguments(-3, 2.5, 9)
    places = arguments.pointers()
    assert view(int(places[0]), 1, "i8")[0] == -3
    assert view(int(places[1]), 1, "f8")[0] == 2.5
    assert view(int(places[2]), 1, "i8")[0] == 9


def test_the_first_of_equally_bad_elements_is_reported():
    rows = np.array(
        [
            (0.5, 1, 1, 3, 128, 0, 0, 0),
            (math.inf, 2, 3, 90, 4, 4, 1, 3),
            (math.inf, 5, 6, 7, 6, 2, 2, 2),
        ],
        WORST,
    )
    found = worst_of(rows)
    assert (found.index, found.first, found.got, found.failures) == (7, 4, 5.0, 6)
    assert worst_of(rows[:1]).first == -1
    assert (found.unwritten, found.poisoned) == (3, 5)


@pytest.mark.parametrize(
    ("status", "code", "sticky"),
    [
        (1, Code.LAUNCH_FAILED, False),
        (2, Code.OUT_OF_MEMORY, False),
        (700, Code.ILLEGAL_ADDRESS, True),
        (716, Code.ILLEGAL_ADDRESS, True),
        (719, Code.TRAP, True),
        (701, Code.REGISTERS, False),
        (901, Code.LAUNCH_FAILED, False),
        (999, Code.CRASH, True),
    ],
)
def test_driver_errors_are_told_apart_by_code(status, code, sticky):
    failure = classified(status, "words")
    assert (failure.code, failure.sticky, failure.detail) == (code, sticky, "words")


def test_the_device_is_kept_busy_longer_the_longer_it_idled():
    assert warm_up_ns(0.004) == 0
    assert 0 < warm_up_ns(0.006) < warm_up_ns(math.inf)


def test_a_device_is_described_by_its_properties():
    device = described(
        {
            "name": b"NVIDIA H100 80GB HBM3",
            "major": 9,
            "minor": 0,
            "maxThreadsPerBlock": 1024,
            "maxThreadsDim": (1024, 1024, 64),
            "maxGridSize": (2**31 - 1, 65535, 65535),
            "warpSize": 32,
            "multiProcessorCount": 132,
            "sharedMemPerBlockOptin": 232448,
            "sharedMemPerMultiprocessor": 233472,
            "regsPerMultiprocessor": 65536,
            "regsPerBlock": 65536,
            "maxThreadsPerMultiProcessor": 2048,
            "maxBlocksPerMultiProcessor": 32,
            "l2CacheSize": 52428800,
            "totalGlobalMem": 80 << 30,
        },
        13000,
    )
    assert device.driver == "CUDA 13.0"
    assert device.arch == "sm_90"
    assert device.l2_bytes == DEVICE.l2_bytes
    assert device.max_shared_bytes_per_block == DEVICE.max_shared_bytes_per_block


def test_work_after_the_last_event_is_refused_when_it_is_no_hiccup():
    late_work = LateWork()
    late, total = 300_000.0, 1e6
    for outlasted in (*[late] * 5, 10_000.0, *[late] * 5):
        late_work.check(outlasted, total)
    with pytest.raises(DeviceFailure, match="went on") as refused:
        late_work.check(late, total)
    assert refused.value.code is Code.IMPOSSIBLE_TIME


@pytest.mark.parametrize(
    ("size", "cache", "sets", "bursts"),
    [
        (400_000, "cold", 400, 5),
        (16_000_000, "cold", 44, 5),
        (705_000_000, "cold", 1, 100),
        (100, "cold", 2048, 5),
        (4_000, "hot", 100, 5),
        (1_000_000, "hot", 26, 5),
        (25_000_000, "hot", 1, 100),
        (30_000_000, "hot", 24, 5),
    ],
)
def test_a_burst_has_as_many_sets_as_memory_or_the_cache_holds(size, cache, sets, bursts):
    rotation = rotation_for(DEVICE, size, cache, warmup=20, repeats=100)
    assert (rotation.sets, rotation.bursts) == (sets, bursts)


@pytest.mark.parametrize("size", [30_000_000, 705_000_000])
def test_what_cannot_stay_in_the_cache_is_timed_cold(size):
    hot, cold = (rotation_for(DEVICE, size, cache, 20, 100) for cache in ("hot", "cold"))
    assert hot == cold


def test_a_part_of_a_timing_has_its_share_of_bursts_each_long_enough():
    whole = rotation_for(DEVICE, 400_000, "cold", warmup=20, repeats=100)
    part = rotation_for(DEVICE, 400_000, "cold", warmup=4, repeats=20)
    assert (whole.bursts, part.bursts) == (5, 1)
    assert part.sets == whole.sets >= 100


def test_variables_are_reset_before_each_launch_of_several(rig):
    counter = np.array([7], np.int32)
    rig.driver.globals["counter"] = counter.ctypes.data
    seen = []

    def count(grid, block, table):
        seen.append(int(counter[0]))
        counter[0] += 1

    rig.driver.kernels["count"] = count
    rig.module = CudaModule(rig.cuda, [replace(binary("count"), lasting=(("counter", 4),))])
    launchable = rig.bind(step("count"))
    launchable.burst((0, 1, 2))
    launchable.burst((0,))
    launchable.burst((1,))
    assert seen == [7, 7, 7, 8, 9], "as in an application, but where a memo would be timed"
    rig.module.release()
