"""Mistakes of a first spec that no compiler explains: names, blocks and sizes."""

from dataclasses import replace

import pytest

from agents.verdict import round_verdict
from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import opencl_cpu
from tuner.errors import SpecError
from tuner.experiment.check.device import require_memory
from tuner.experiment.load import load_experiment
from tuner.results.summary import summarise

SPEC = """\
version: 1
name: scale
kernel:
  language: opencl
  source: scale.cl
  entry: scale
  launch: {{grid: ["ceil_div(n, 16)"], block: [{block}]}}
arguments:
  - {{name: out, kind: out, dtype: float32, shape: n}}
  - {{name: x, kind: in, dtype: float32, shape: n}}
  - {{name: n, kind: scalar, dtype: int64, value: n}}
shapes: {{domain: [1 <= n], tune: [{{n: {size}}}]}}
template:
  source: variant.cl
  entry: scale
  parameters: {{{name}: [1, 2]}}
  launch: {{grid: ["ceil_div(n, 16)"], block: [16]}}
"""
SOURCE = """\
float twice(float x) {{ return 2 * x; }}
kernel {attribute}void scale(global float *out, global const float *x, const long n) {{
  const long i = get_global_id(0) * {name};
  if (i < n) out[i] = twice(x[i]);
}}
"""


def load(folder, *, block=16, size=1000, name="VEC", attribute=""):
    (folder / "spec.yaml").write_text(SPEC.format(block=block, size=size, name=name))
    (folder / "scale.cl").write_text(SOURCE.format(attribute=attribute, name="1"))
    (folder / "variant.cl").write_text(SOURCE.format(attribute="", name=name))
    return load_experiment(folder / "spec.yaml")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("i", "'i' is declared in variant.cl"),
        ("twice", "'twice' is declared in variant.cl"),
        ("get_global_id", "'get_global_id' is called in variant.cl"),
        ("scale", "'scale' is the entry"),
    ],
)
def test_a_parameter_that_replaces_another_name_is_refused(tmp_path, name, said):
    with pytest.raises(SpecError, match=f"{said}, which its macro would replace"):
        load(tmp_path, name=name)


def test_a_block_is_the_one_that_the_kernel_requires(tmp_path):
    attribute = "__attribute__((reqd_work_group_size(64, 1, 1))) "
    load(tmp_path, block=64, attribute=attribute)
    with pytest.raises(SpecError, match=r"spec.yaml:7:.* wants a block of \[64\], not \[16\]"):
        load(tmp_path, block=16, attribute=attribute)


def test_arguments_fit_the_device(tmp_path):
    device = replace(opencl_cpu(), memory_bytes=1 << 30)
    require_memory(load(tmp_path, size=1 << 27), device)
    with pytest.raises(SpecError, match=r"shapes.tune.0: .* take 2.0 GiB, and .* has 1.0 GiB"):
        require_memory(load(tmp_path, size=1 << 28), device)


def test_a_round_without_time_is_not_called_invalid():
    history = finished_run(experiment(), GPU, [1000.0, 2000.0, 4000.0], [])
    assert round_verdict(history, summarise(history)).words.startswith("out of time")
