"""Structs by value and unordered outputs on a device, from the spec to a trial's outcome."""

import pytest

from tests.workers.harness import Laboratory
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
