"""A binary as baseline: read with the spec, kept with its digest, refused where it cannot be."""

import hashlib
from dataclasses import replace

import pytest

from tests.tuner.experiment import specs
from tests.tuner.experiment.test_load import said
from tests.tuner.export.test_bundle import corners
from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.errors import SpecError
from tuner.experiment import fields
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import dump_resolved, load_experiment, load_resolved
from tuner.export.bundle import export_files
from tuner.export.record import NAME, read_record
from tuner.files import packed, unpacked
from tuner.space.lower import lower
from tuner.trial import Configuration

CODE = bytes(range(256)) * 3
KERNEL = """\
#include <torch/extension.h>
namespace ns { __constant__ float t[2]; }
__global__ void scale(float* out, const float* x, int n) { out[blockIdx.x] = 2 * x[blockIdx.x]; }
"""
TEMPLATE = """\
namespace ns { __constant__ float t[2]; }
extern "C" __global__ void scale(float* out, const float* x, int n) {}
"""
SPEC = """\
version: 1
name: scale
kernel:
  language: cuda
  source: scale.cu
  entry: scale
  binary: BINARY
  launch: {grid: n, block: 1}
arguments:
  - {name: out, kind: out,    dtype: float32, shape: [n]}
  - {name: x,   kind: in,     dtype: float32, shape: [n]}
  - {name: n,   kind: scalar, dtype: int32,   value: n}
  - {name: t,   kind: constant, dtype: float32, shape: [2], symbol: "ns::t"}
shapes:
  tune: [{n: 100}, {n: 200}]
template:
  source: template.cu
  entry: scale
  parameters: {BLOCK: [1, 2]}
  launch: {grid: n, block: BLOCK}
"""


def written(folder, binary="app.cubin", spec=SPEC):
    (folder / "app.cubin").write_bytes(CODE)
    return specs.write(
        folder, spec.replace("BINARY", binary), scale__cu=KERNEL, template__cu=TEMPLATE
    )


def test_it_is_part_of_the_resolved_spec_with_its_digest(tmp_path):
    experiment = load_experiment(written(tmp_path))
    held = experiment.kernel.binary.file
    assert (held.name, held.sha256) == ("app.cubin", hashlib.sha256(CODE).hexdigest())
    text = dump_resolved(experiment)
    assert load_resolved(text) == experiment
    (tmp_path / "app.cubin").unlink()
    assert unpacked(load_resolved(text).kernel.binary.file.data, 1 << 20) == CODE
    with pytest.raises(SpecError, match=r"do not have its SHA-256"):
        load_resolved(text.replace(held.sha256, "0" * 64))


def test_the_baseline_alone_is_made_of_it(tmp_path):
    experiment = load_experiment(written(tmp_path, "{file: app.cubin, symbols: {scale: _Z5s}}"))
    device, tune = cuda_device(90), experiment.shapes.tune
    (baseline,) = lower(experiment, None, Configuration(()), tune, device).builds
    assert unpacked(baseline.image, 1 << 20) == CODE
    assert baseline.symbols == (("scale", "_Z5s"),)
    block = Configuration.of({"BLOCK": 2})
    (candidate,) = lower(experiment, experiment.template, block, tune, device).builds
    assert (candidate.image, candidate.symbols) == ("", ())
    plain = replace(experiment.kernel, binary=None)
    assert kernel_digest(plain) != kernel_digest(experiment.kernel)


def test_verification_of_an_export_measures_the_same_binary(tmp_path):
    experiment = load_experiment(written(tmp_path))
    run = finished_run(
        experiment,
        cuda_device(90),
        [1000.0, 1000.0],
        [(corners(experiment)[0].as_dict(), [500.0, 500.0])],
        noise=0.001,
    )
    files = export_files(run)
    baseline, general = read_record(files[NAME]).variants
    assert [bool(b.image) for b in baseline.plan(experiment, files).builds] == [True]
    assert [bool(b.image) for b in general.plan(experiment, files).builds] == [False]
    assert [b.variables for b in general.plan(experiment, files).builds] == [("ns::t",)]
    assert "measured as in app.cubin" in files["scale.h"]


@pytest.mark.parametrize(
    ("binary", "spec", "message"),
    [
        ("absent.cubin", SPEC, "spec.yaml:7: no such file:"),
        ("{file: app.cubin, symbols: {scael: _Z5s}}", SPEC, "no entry 'scael'; did you mean"),
        ("app.cubin", SPEC.replace("entry: scale", "entry: _Z5scalePfPKfi", 1),
         "'_Z5scalePfPKfi' is a name in a binary: give the source's, such as 'scale'"),
        ("{symbols: {scale: _Z5s}}", SPEC, "missing key 'file'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path, binary, spec, message):
    (problem,) = said(written(tmp_path, binary, spec))
    assert message in problem


def test_opencl_refuses_it_by_name(tmp_path):
    (tmp_path / "app.cubin").write_bytes(CODE)
    spec = specs.SPEC.replace("  entry: scale\n", "  entry: scale\n  binary: app.cubin\n")
    assert said(specs.write(tmp_path, spec)) == [
        "spec.yaml:7: a binary as baseline is CUDA's alone; OpenCL compiles kernel.source"
    ]


def test_a_binary_too_large_for_the_spec_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(fields, "MAX_PACKED_CHARACTERS", 100)
    (problem,) = said(written(tmp_path))
    assert "cuobjdump -xelf" in problem


def test_packed_bytes_come_back_and_are_bounded():
    assert unpacked(packed(CODE), len(CODE)) == CODE
    for text, limit in ((packed(CODE), len(CODE) - 1), ("AAAA", 10), ("", 10), ("§", 10)):
        with pytest.raises(ValueError, match=r".+"):
            unpacked(text, limit)
