"""Draft specs from facts of a capture: what is written, what is marked, and that it loads."""

import json

import numpy as np
import pytest

from tuner.drafts.captured import CapturedKernel, CapturedShape, Memory
from tuner.drafts.captured_spec import Surroundings, captured_spec
from tuner.drafts.draft_spec import unread_guesses
from tuner.drafts.guesses import Guess
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.source_build import source_build

SURE = "high"
SOURCE = """#include <torch/extension.h>
__global__ void silu(const float* in, float* out, int n) {}
"""


def memory(read=None, written=None, dense=True, fault=False, address=1 << 20, replayed=True):
    return Memory(
        read=read and (0, read),
        written=written and (0, written),
        dense=dense,
        fault=fault,
        address=address,
        replayed=replayed,
    )


def shape(n, count=1, grid=None, replay="exact", **more):
    given = {
        "count": count,
        "grid": grid or (-(-n // 256), 1, 1),
        "block": (256, 1, 1),
        "shared_bytes": 0,
        "cooperative": False,
        "scalars": {2: np.int32(n).tobytes()},
        "memory": {0: memory(read=4 * n), 1: memory(written=4 * n, address=(1 << 20) + 8)},
        "replay": replay,
    }
    return CapturedShape(**given | more)


def kernel(*shapes, **more):
    given = {
        "symbol": "_Z4siluPKfPfi",
        "sizes": (8, 8, 4),
        "types": {
            index: Guess(text=value, why="its name", confidence=SURE)
            for index, value in enumerate(("float32", "float32", "int32"))
        },
        "pointers": frozenset({0, 1}),
        "shapes": shapes,
    }
    return CapturedKernel(**given | more)


def written(folder, found, source=SOURCE):
    """The spec on disk with the files that it names."""
    (folder / "data" / "after").mkdir(parents=True)
    (folder / "app.cubin").write_bytes(b"\x7fELF")
    (folder / "silu.cu").write_text(source)
    built = source_build(folder / "silu.cu", folder)
    draft = captured_spec(found, Surroundings(binary="app.cubin", data="data", source=built))
    for file in draft.files:
        np.save(folder / file.name, np.zeros(file.elements, file.dtype))
    (folder / "spec.yaml").write_text(draft.text)
    return draft


THREE = (shape(5000, 9), shape(1000, 4), shape(77_777, 2))


def test_several_shapes_give_expressions_and_a_spec_that_loads(tmp_path):
    draft = written(tmp_path, kernel(*THREE))
    experiment = load_experiment(tmp_path / "spec.yaml")
    assert experiment.name == "silu"
    assert experiment.kernel.entry == "silu"
    assert experiment.kernel.binary.symbols == {"silu": "_Z4siluPKfPfi"}
    assert experiment.kernel.launch.grid[0].text == "ceil_div(n, 256)"
    assert [a.name for a in experiment.arguments] == ["in_", "out", "n"]
    assert [a.kind for a in experiment.arguments] == ["in", "out", "scalar"]
    assert [a.align for a in experiment.arguments] == [16, 8, None]
    assert experiment.arguments[0].shape[0].text == "n"
    assert [(s.symbols, s.weight) for s in experiment.shapes.tune] == [
        ({"n": 5000}, 9), ({"n": 1000}, 4), ({"n": 77_777}, 2)
    ]  # fmt: skip
    assert [limit.text for limit in experiment.shapes.domain] == ["1000 <= n", "n <= 77777"]
    assert [file.name for file in draft.files] == [
        *(f"data/in_-{n}.npy" for n in (5000, 1000, 77_777)),
        *(f"data/after/out-n={n}.npy" for n in (5000, 1000, 77_777)),
    ]
    marked = [draft.text.splitlines()[line - 1] for line in unread_guesses(draft.text)]
    assert [line.split()[0] for line in marked] == ["block:", "domain:"]


def test_pointers_to_the_same_memory_are_told(tmp_path):
    both = memory(read=400, written=400)
    draft = written(tmp_path, kernel(shape(100, memory={0: both, 1: both})))
    assert "the same memory as out, which a spec passes as two copies" in draft.text


def test_without_a_source_its_place_is_marked(tmp_path):
    found = captured_spec(kernel(*THREE), Surroundings(binary="images/x", data="data"))
    assert "  source: SOURCE.cu    # guess: give the file" in found.text
    assert "{name: p0, kind: in" in found.text
    assert 'entry: silu\n  binary: {file: "images/x", symbols: {silu: _Z4siluPKfPfi}}' in found.text


def test_one_shape_is_little_evidence(tmp_path):
    draft = written(tmp_path, kernel(shape(5000)))
    experiment = load_experiment(tmp_path / "spec.yaml")
    assert experiment.kernel.launch.grid[0].text == "ceil_div(n, 256)"
    assert 'grid: ["ceil_div(n, 256)"]    # guess: fits the one shape' in draft.text
    assert [limit.text for limit in experiment.shapes.domain] == ["n == 5000"]


def test_numbers_that_nothing_explains_become_symbols(tmp_path):
    odd = [
        shape(n, grid=(grid, 1, 1), memory={0: memory(4 * size), 1: memory(None, 4 * n, address=8)})
        for n, grid, size in ((5000, 3, 17), (1000, 9, 400), (800, 5, 31))
    ]
    written(tmp_path, kernel(*odd))
    experiment = load_experiment(tmp_path / "spec.yaml")
    assert experiment.shapes.tune[0].symbols == {"n": 5000, "in__items": 17, "grid0": 3}
    assert experiment.arguments[0].shape[0].text == "in__items"
    assert experiment.kernel.launch.grid[0].text == "grid0"


def test_weak_evidence_and_what_cannot_be_expressed_is_told(tmp_path):
    partly = memory(written=400, dense=False)
    index = memory(read=400, fault=True, address=1 << 21)
    found = kernel(
        shape(100, replay="varies", memory={0: index, 1: partly}),
        types={
            0: Guess(text="float32", why="its bytes look like it", confidence="medium"),
            1: Guess(text="float32", why="its name", confidence=SURE),
            2: Guess(text="int32", why="its name", confidence=SURE),
        },
        unsupported=("thread-block clusters are not supported\n- injected: true",),
    )
    draft = written(tmp_path, found)
    assert (
        "# NOT EXPRESSED: thread-block clusters are not supported - injected: true\n" in draft.text
    )
    assert "other contents crash the kernel" in draft.text
    assert "type by its bytes look like it (medium)" in draft.text
    assert "written in part" in draft.text
    assert "others: varies" in draft.text
    assert load_experiment(tmp_path / "spec.yaml").arguments[1].kind == "inout"


def test_many_shapes_are_split_and_flags_stay_numbers(tmp_path):
    shapes = [
        shape(1000 * k, 20 - k, scalars={2: np.int32(1).tobytes()}, memory={
            0: memory(4000 * k), 1: memory(None, 4000 * k, address=64)
        })
        for k in range(1, 13)
    ]  # fmt: skip
    draft = written(tmp_path, kernel(*shapes))
    experiment = load_experiment(tmp_path / "spec.yaml")
    assert (len(experiment.shapes.tune), len(experiment.shapes.held_out)) == (6, 4)
    assert experiment.arguments[2].value.text == "1"
    assert "# 2 other shapes were launched" in draft.text


def test_clusters_and_macros_of_the_build_are_written(tmp_path):
    (tmp_path / "silu.cu").write_text(SOURCE)
    listed = commands(tmp_path, "-DWIDTH=4", "-DFAST", "silu.cu")
    built = source_build(tmp_path / "silu.cu", tmp_path, commands=listed)
    around = Surroundings(binary="b", data="data", source=built)
    text = captured_spec(kernel(shape(512, cluster=(2, 1, 1))), around).text
    assert '  defines: {WIDTH: "4", FAST: "1"}\n' in text
    assert "    cluster: [2, 1, 1]\n" in text


def test_scalars_null_pointers_and_structs(tmp_path):
    found = kernel(
        shape(
            64,
            scalars={
                2: np.float32(1.5).tobytes(),
                3: bytes(range(12)),
                4: np.float16(0.5).tobytes(),
            },
        ),
        sizes=(8, 8, 4, 12, 2, 8),
        pointers=frozenset({0, 1, 5}),
        types={
            0: Guess(text="float32", why="r", confidence=SURE),
            1: Guess(text="float32", why="r", confidence=SURE),
            2: Guess(text="float32", why="its size and value", confidence="medium"),
            4: Guess(text="float16", why="r", confidence=SURE),
        },
    )
    text = captured_spec(found, Surroundings(binary=None, data="data")).text
    assert "{name: p2, kind: scalar, dtype: float32, value: 1.5}    # guess: type by its" in text
    assert f'{{name: p3, kind: struct, bytes: "{bytes(range(12)).hex()}"}}' in text
    assert "{name: p4, kind: scalar, dtype: float16, value: 0.5}\n" in text
    assert "{name: p5, kind: null}" in text
    assert "binary:" not in text


def commands(folder, *words):
    entry = {"directory": str(folder), "file": "silu.cu", "arguments": ["nvcc", *words]}
    (folder / "compile_commands.json").write_text(json.dumps([entry]))
    return folder / "compile_commands.json"


def test_a_build_tells_folders_options_and_macros(tmp_path):
    (tmp_path / "silu.cu").write_text(SOURCE)
    for name in ("include", "third", "own"):
        (tmp_path / name).mkdir()
    listed = commands(
        tmp_path, "-Iinclude", "-isystem", "third", "-I", "absent", "-DWIDTH=4", "-D", "FAST",
        "-use_fast_math", "-std=c++17", "-O3", "--maxrregcount=64", "-c", "silu.cu"
    )  # fmt: skip
    built = source_build(
        tmp_path / "silu.cu", tmp_path / "specs", commands=listed, include=[tmp_path / "own"]
    )
    assert built.path == "../silu.cu"
    assert built.include_dirs == ("../include", "../third", "../own")
    assert built.options == ("--use_fast_math", "--std=c++17", "--maxrregcount=64")
    assert built.defines == ("WIDTH=4", "FAST")


@pytest.mark.parametrize("text", ["", "[]", "{}", '[{"directory": 1}]', "[1]", "null"])
def test_commands_that_do_not_help_are_refused(tmp_path, text):
    (tmp_path / "silu.cu").write_text(SOURCE)
    (tmp_path / "compile_commands.json").write_text(text)
    with pytest.raises(SpecError, match=r"compile_commands\.json"):
        source_build(tmp_path / "silu.cu", tmp_path, commands=tmp_path / "compile_commands.json")


@pytest.mark.parametrize("separator", ["\u2028", "\x85"])
def test_a_name_does_not_end_a_comment(separator):
    found = kernel(*THREE, symbol=f"silu{separator}version: 2")
    draft = captured_spec(found, Surroundings(binary=None, data="data"))
    assert separator not in draft.text
