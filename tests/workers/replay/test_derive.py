"""Roles, extents and types from captured launches, with NumPy functions as kernels."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from tests.workers.interposer.recordings import captured_launch, write_recording
from tests.workers.replay.stand_in import launched, opener
from tuner.errors import SpecError
from workers.interposer.recording import read_recording
from workers.replay.derive import contents, derive

RNG = np.random.default_rng(0)
I32 = np.int32


def number(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def silu_of(dtype):
    def silu(x, out, n):
        count = number(n)
        values = x.view(dtype)[:count].astype(np.float64)
        out.view(dtype)[:count] = values / (1 + np.exp(-values))

    return silu


silu = silu_of(np.float32)


def row_sums(out, x, rows, columns):
    shape = number(rows), number(columns)
    values = x.view(np.float16)[: shape[0] * shape[1]].reshape(shape).astype(np.float64)
    out.view(np.float32)[: shape[0]] = values.sum(axis=1)


def gather(out, table, index, n):
    places = index.view(np.int32)[: number(n)]
    if places.size and not (places.min() >= 0 and places.max() < 64):
        raise IndexError
    out.view(np.float32)[: places.size] = table.view(np.float32)[places]


def scale_in_place(x, factor, n):
    x.view(np.float32)[: number(n)] *= np.frombuffer(factor, np.float32)[0]


def every_other(out, x, n):
    out.view(np.float32)[: number(n) : 2] = x.view(np.float32)[: number(n) : 2] + 1


def derived(folder, kernel, *launches, name="_Z1kv", replayed=True):
    recording = write_recording(folder, launches, name=name)
    return derive(folder, recording, 0, opener(kernel) if replayed else None)


def floats(count, dtype=np.float32):
    return RNG.standard_normal(count).astype(dtype)


def test_elementwise_reads_and_writes_as_far_as_its_size_says(tmp_path):
    launch = launched(tmp_path, silu, floats(1000), floats(1200), I32(777))
    found = derived(tmp_path, silu, launch, name="_Z4siluPKfPfi")
    (shape,) = found.shapes
    x, out = shape.memory[0], shape.memory[1]
    assert (x.kind, x.read, x.written) == ("in", (0, 4 * 777), None)
    assert (out.kind, out.read, out.written, out.dense) == ("out", None, (0, 4 * 777), True)
    assert shape.replay == "exact"
    assert shape.scalars == {2: I32(777).tobytes()}
    assert {index: guess.text for index, guess in found.types.items()} == {
        0: "float32", 1: "float32", 2: "int32"
    }  # fmt: skip
    assert {guess.confidence for guess in found.types.values()} == {"high"}
    assert found.pointers == {0, 1}


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "float32"),
        (np.float64, "float64"),
        (np.float16, "float16"),
        (ml_dtypes.bfloat16, "bfloat16"),
    ],
)
def test_types_without_a_mangled_name_are_found_by_nans(tmp_path, dtype, name):
    kernel = silu_of(dtype)
    launch = launched(tmp_path, kernel, floats(512, dtype), floats(512, dtype), I32(512))
    found = derived(tmp_path, kernel, launch, name="triton_poi_fused_0")
    assert (found.types[0].text, found.types[0].confidence) == (name, "high")
    assert (found.types[1].text, found.types[1].confidence) == (name, "medium")
    assert (found.types[2].text, found.types[2].confidence) == ("int32", "medium")


def test_a_reduction_has_other_extents_and_types_in_and_out(tmp_path):
    launch = launched(tmp_path, row_sums, floats(64), floats(40 * 33, np.float16), I32(33), I32(40))
    found = derived(tmp_path, row_sums, launch, name="sums")
    memory = found.shapes[0].memory
    assert (memory[0].kind, memory[0].written) == ("out", (0, 4 * 33))
    assert (memory[1].kind, memory[1].read) == ("in", (0, 2 * 33 * 40))
    assert (found.types[0].text, found.types[1].text) == ("float32", "float16")


def test_indices_that_crash_a_launch_are_read(tmp_path):
    places = RNG.integers(0, 64, 100).astype(np.int32)
    launch = launched(tmp_path, gather, floats(100), floats(64), places, I32(100))
    found = derived(tmp_path, gather, launch, name="gather")
    memory = found.shapes[0].memory
    assert [memory[index].kind for index in range(3)] == ["out", "in", "in"]
    assert memory[2].fault
    assert not memory[1].fault
    assert memory[2].read == (0, 400)
    assert found.types[2].text == "int32"


def test_in_place_and_partly_written_outputs_are_inout(tmp_path):
    launch = launched(tmp_path, scale_in_place, floats(300), np.float32(1.5), I32(200))
    found = derived(tmp_path, scale_in_place, launch)
    (memory,) = found.shapes[0].memory.values()
    assert (memory.kind, memory.read, memory.written) == ("inout", (0, 800), (0, 800))
    assert found.types[1].text == "float32"

    other = tmp_path / "other"
    launch = launched(other, every_other, floats(300), floats(300), I32(299))
    memory = derived(other, every_other, launch).shapes[0].memory
    assert (memory[0].kind, memory[0].read, memory[0].dense) == ("inout", None, False)


def test_two_pointers_into_one_allocation_and_a_write_of_what_was_there(tmp_path):
    x = floats(256)
    launch = launched(tmp_path, silu, np.concatenate([x, floats(256)]), floats(256), I32(200))
    both = launch.buffers[0]
    inner = dataclasses.replace(launch.pointers[1], buffer=0, offset=1024)
    address = both.address + 1024
    result = x[:200].astype(np.float64)
    result = (result / (1 + np.exp(-result))).astype(np.float32)
    held = np.concatenate([x, result, floats(56)]).tobytes()
    launch = captured_launch(tmp_path, [(held, held), I32(0).tobytes() * 2, I32(200).tobytes()])
    raw = (launch.arguments[0], address.to_bytes(8, "little").hex(), launch.arguments[2])
    launch = dataclasses.replace(launch, arguments=raw, pointers=(launch.pointers[0], inner))
    memory = derived(tmp_path, silu, launch, name="silu").shapes[0].memory
    assert (memory[0].kind, memory[0].read) == ("in", (0, 800))
    assert (memory[1].kind, memory[1].written) == ("out", (0, 800))
    assert memory[1].address == address
    assert contents(tmp_path, launch, 1, 8, after=False) == held[1024:1032]


def test_results_that_vary_or_differ_are_told(tmp_path):
    launch = launched(tmp_path, silu, floats(64), floats(64), I32(64))

    def noisy(x, out, n):
        silu(x, out, n)
        out[::16] = RNG.integers(0, 256, out[::16].size)

    found = derived(tmp_path, noisy, launch)
    assert found.shapes[0].replay == "varies"
    assert found.shapes[0].memory[0].read == (0, 256)
    other = derived(tmp_path, scale_and_store, launch)
    assert other.shapes[0].replay == "different"


def scale_and_store(x, out, n):
    out.view(np.float32)[: number(n)] = 2 * x.view(np.float32)[: number(n)]


def fails(*_):
    raise IndexError


@pytest.mark.parametrize("replayed", [False, True])
def test_without_a_replay_only_what_changed_is_known(tmp_path, replayed):
    launch = launched(tmp_path, silu, floats(64), floats(80), I32(64))
    found = derived(tmp_path, fails, launch, replayed=replayed)
    memory = found.shapes[0].memory
    assert [memory[index].kind for index in (0, 1)] == ["in", "out"]
    assert (memory[0].bytes, memory[1].bytes) == (256, 256)
    assert not memory[0].replayed
    told = found.shapes[0].replay
    assert told == ("failed: illegal address" if replayed else "none")
    assert (found.types[0].text, found.types[0].confidence) == ("float32", "medium")


def test_shapes_are_ordered_by_count_and_those_not_captured_are_counted(tmp_path):
    rare = launched(tmp_path, silu, floats(64), floats(64), I32(64), eager=2, grid=(1, 1, 1))
    often = launched(
        tmp_path, silu, floats(128), floats(128), I32(128), in_graphs=9, grid=(2, 1, 1)
    )
    counted = dataclasses.replace(often, captured=False, pointers=(), buffers=(), grid=(3, 1, 1))
    found = derived(tmp_path, silu, rare, often, counted)
    assert [(shape.count, shape.grid[0]) for shape in found.shapes] == [(10, 2), (10, 3), (2, 1)]
    assert found.shapes[1].memory == {}
    assert found.shapes[1].scalars.keys() == {2}
    with pytest.raises(SpecError, match="no launch of _Z1kv was captured"):
        derived(tmp_path, silu, counted)


def test_what_no_spec_can_express_is_named(tmp_path):
    launch = launched(tmp_path, silu, floats(8), floats(8), I32(8))
    launch = dataclasses.replace(launch, cluster=(2, 1, 1), notes=("pointers in memory",))
    recording = write_recording(tmp_path, [launch])
    kernel = dataclasses.replace(recording.kernels[0], image=None)
    found = derive(tmp_path, dataclasses.replace(recording, kernels=(kernel,)), 0, opener(silu))
    assert found.shapes[0].replay == "none"
    text = "; ".join(found.unsupported)
    assert "no binary" in text
    assert found.shapes[0].cluster == (2, 1, 1)
    assert "pointers in memory" in text


def test_a_struct_with_a_pointer_is_raw_bytes_and_named(tmp_path):
    def boxed(box, out, n):
        silu(box, out, n)

    launch = launched(tmp_path, silu, floats(64), floats(64), I32(64))
    box = launch.arguments[0] + "2a" * 8
    launch = dataclasses.replace(launch, arguments=(box, *launch.arguments[1:]))
    found = derived(tmp_path, boxed, launch, name="boxed")
    assert found.pointers == {1}
    assert found.shapes[0].memory.keys() == {1}
    assert found.shapes[0].scalars[0] == bytes.fromhex(box)
    assert found.unsupported == ("parameter 0 is a struct that holds pointers",)


def test_a_damaged_file_is_refused(tmp_path):
    launch = launched(tmp_path, silu, floats(8), floats(8), I32(8))
    write_recording(tmp_path, [launch])
    (tmp_path / "buffers" / launch.buffers[0].before).write_bytes(b"other")
    with pytest.raises(SpecError, match="capture again"):
        derive(tmp_path, read_recording(tmp_path), 0, None)
