"""Structs by value and unordered outputs on a device, from the spec to a trial's outcome."""

import itertools
import re

import pytest

from tests.workers.harness import Laboratory
from tuner.drafts.draft_spec import draft_spec
from tuner.trial import Measured, Rejected

KERNEL = """\
typedef struct { int rows; float scale[2]; } params;

// Each row of x, between two offsets, backwards if ORDER: with the key of its row beside it.
__kernel void rows(__global float *out, __global int *keys, __global float *picked,
                   __global const float *x, __global const int *ends, const params p) {
  const int row = get_global_id(0);
  if (row >= p.rows) return;
  const int begin = ends[row], end = ends[row + 1];
  for (int k = begin; k < end; ++k) {
    const int to = TO;
    out[to] = p.scale[0] * x[k] + p.scale[1];
    const int other = OTHER;
    keys[other] = row;
    picked[other] = x[k];
  }
}
"""
PLAIN = {"TO": "k", "OTHER": "k"}

SPEC = """\
version: 1
name: rows
kernel: {language: opencl, source: rows.cl, entry: rows, launch: {grid: [rows], block: [1]}}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [n], compare: {unordered: {segments: ends}}}
  - {name: keys, kind: out, dtype: int32, shape: [n], compare: {unordered: whole}}
  - {name: picked, kind: out, dtype: float32, shape: [n], compare: {unordered: {key: keys}}}
  - {name: x, kind: in, dtype: float32, shape: [n]}
  - {name: ends, kind: in, dtype: int32, shape: [rows + 1], values: {offsets: n}}
  - name: p
    kind: struct
    fields:
      - {name: rows, dtype: int32, value: rows}
      - {name: scale, dtype: float32, value: [2, 0.5]}
shapes: {domain: [rows > 0, n > 0], tune: [{rows: 16, n: 256}]}
reference: reference.py:rows
measure: {warmup: 1, repeats: 3, cache: hot}
"""

REFERENCE = """\
import numpy as np


def rows(x, ends, p):
    keys = np.repeat(np.arange(p["rows"]), np.diff(ends))
    return {"out": p["scale"][0] * x + p["scale"][1], "keys": keys, "picked": x}
"""


def source(**places):
    text = KERNEL
    for name, value in (PLAIN | places).items():
        text = text.replace(f" {name};", f" {value};")
    return text


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.cl").write_text(source())
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "spec.yaml").write_text(SPEC)
    found = Laboratory(folder / "spec.yaml")
    yield found
    found.close()


def test_another_order_within_the_groups_is_right(laboratory):
    prepared = laboratory.prepared.result
    assert not isinstance(prepared, Rejected), prepared
    outcome = laboratory.outcome(source(TO="begin + end - 1 - k", OTHER="ends[p.rows] - 1 - k"))
    assert isinstance(outcome, Measured), outcome


@pytest.mark.parametrize(
    ("places", "name"),
    [
        ({"TO": "ends[p.rows] - 1 - k"}, "out"),
        ({"OTHER": "k == begin && row > 0 ? begin - 1 : k"}, "keys"),
    ],
)
def test_elements_of_other_groups_are_wrong(laboratory, places, name):
    outcome = laboratory.outcome(source(**places))
    assert isinstance(outcome, Rejected), outcome
    assert name in outcome.detail


def test_values_of_another_key_are_wrong(laboratory):
    swapped = source().replace("picked[other]", "picked[ends[p.rows] - 1 - other]")
    outcome = laboratory.outcome(swapped)
    assert isinstance(outcome, Rejected), outcome
    assert "picked" in outcome.detail


THREES = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double")


def test_vectors_of_three_are_drafted_as_the_device_lays_them_out(tmp_path):
    """A kernel returns what it finds in each field of a struct and in each bare vector."""
    seen = [f"p.v_{one}.{axis}" for one in THREES for axis in "xyz"]
    seen += [f"p.c_{one}" for one in THREES]
    seen += [f"b_{one}.{axis}" for one in THREES for axis in "xyz"]
    members = "".join(f"  {one}3 v_{one}; char c_{one};\n" for one in THREES)
    bare = ", ".join(f"{one}3 b_{one}" for one in THREES)
    stores = "".join(f"  out[i * {len(seen)} + {k}] = {what};\n" for k, what in enumerate(seen))
    (tmp_path / "k.cl").write_text(
        f"struct S {{\n{members}}};\n"
        f"__kernel void k(__global float *out, struct S p, {bare}, int n) {{\n"
        f"  const int i = get_global_id(0);\n{stores}}}\n"
    )
    drafted = [one for one in draft_spec(tmp_path / "k.cl").splitlines() if "kind: struct" in one]
    counter = itertools.count(1)
    numbered = re.sub(r"(?<=[ \[])0(?=[,}\]])", lambda _: str(next(counter)), "\n".join(drafted))
    assert next(counter) == 1 + len(THREES) * (4 + 1 + 4)
    (tmp_path / "spec.yaml").write_text(
        "version: 1\nname: k\n"
        "kernel: {language: opencl, source: k.cl, entry: k, launch: {grid: [n], block: [1]}}\n"
        "arguments:\n"
        f"  - {{name: out, kind: out, dtype: float32, shape: [n, {len(seen)}]}}\n{numbered}\n"
        "  - {name: n, kind: scalar, dtype: int32, value: n}\n"
        "shapes: {domain: [n > 0], tune: [{n: 16}]}\n"
        "reference: reference.py:k\nmeasure: {warmup: 1, repeats: 3, cache: hot}\n"
    )
    (tmp_path / "reference.py").write_text(
        f"import numpy as np\n\nTYPES = {THREES}\n\n\n"
        "def k(n, p, **bare):\n"
        '    row = [p[f"v_{one}"][axis] for one in TYPES for axis in range(3)]\n'
        '    row += [p[f"c_{one}"] for one in TYPES]\n'
        '    row += [bare[f"b_{one}"]["value"][axis] for one in TYPES for axis in range(3)]\n'
        '    return {"out": np.tile(np.array(row, np.float32), (n, 1))}\n'
    )
    laboratory = Laboratory(tmp_path / "spec.yaml")
    laboratory.close()
    assert not isinstance(laboratory.prepared.result, Rejected), laboratory.prepared.result
