"""A spec from arrays: what it holds, that it can be tuned, and what is refused."""

from functools import partial

import numpy as np
import pytest

import kernelwright as kw
from agents.settings import SECTIONS
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import load_experiment

SOURCE = """\
kernel void scale(global float *out, global const float *x, float factor, int n) {
#if HOW == HOW_twice
  factor *= 1.0f;
#endif
  int i = get_group_id(0) * BLOCK + get_local_id(0);
  if (i < n) out[i] = factor * x[i];
}
"""

X = np.linspace(-1, 1, 64, dtype=np.float32)


def scale(x, factor, n):
    return factor * x


def write(folder, **changed):
    given = {
        "language": "opencl",
        "source": SOURCE,
        "entry": "scale",
        "arguments": {"out": X, "x": X, "factor": np.float32(3), "n": np.int32(64)},
        "outputs": ["out"],
        "grid": "ceil_div(n, BLOCK)",
        "block": ["BLOCK"],
        "parameters": {"BLOCK": [16, 64], "HOW": ["once", "twice"]},
        "constraints": ["BLOCK < 100"],
        "reference": scale,
    }
    return kw.write_spec(folder, **(given | changed))


def test_the_baseline_is_the_kernel_with_the_values_that_are_named(tmp_path):
    spec = write(tmp_path, baseline={"HOW": "twice"})
    experiment = load_experiment(spec, SECTIONS)
    assert experiment.kernel.source.text == (
        "#define BLOCK 16\n#define HOW_once 0\n#define HOW_twice 1\n#define HOW 1\n" + SOURCE
    )
    assert experiment.template.source.text == SOURCE
    assert [one.kind for one in experiment.arguments] == ["out", "in", "scalar", "scalar"]
    assert experiment.shapes.tune[0].symbols == {"n": 64}
    assert np.array_equal(np.load(tmp_path / "data" / "x.npy"), X)
    assert not (tmp_path / "data" / "out.npy").exists()


def test_an_array_that_is_updated_begins_with_what_it_held(tmp_path):
    experiment = load_experiment(write(tmp_path, outputs=[], updated=["out"]), SECTIONS)
    assert experiment.arguments[0].kind == "inout"
    assert np.array_equal(np.load(tmp_path / "data" / "out.npy"), X)


def test_a_folder_of_an_earlier_call_is_replaced_and_no_other(tmp_path):
    write(tmp_path / "own")
    again = write(tmp_path / "own", parameters={"BLOCK": [32], "HOW": ["once", "twice"]})
    assert load_experiment(again, SECTIONS).template.parameters["BLOCK"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "spec.yaml").write_text("name: mine\n")
    with pytest.raises(EnvironmentProblem, match="holds other files: name a folder of its own"):
        write(tmp_path / "other")
    assert (tmp_path / "other" / "spec.yaml").read_text() == "name: mine\n"


def test_values_of_numpy_and_one_value_alone_are_taken(tmp_path):
    experiment = load_experiment(
        write(
            tmp_path,
            parameters={"BLOCK": 2 ** np.arange(4, 7), "HOW": np.array(["once", "twice"])},
            baseline={"BLOCK": np.int64(32)},
            grid=np.int32(4),
            block=[np.int64(16)],
            outputs="out",
            constraints="BLOCK < 64",
        ),
        SECTIONS,
    )
    assert experiment.template.parameters == {"BLOCK": (16, 32, 64), "HOW": ("once", "twice")}
    assert [one.text for one in experiment.template.constraints] == ["BLOCK < 64"]


def test_what_is_refused_leaves_the_folder_free(tmp_path):
    with pytest.raises(SpecError, match="dtype object"):
        write(tmp_path, arguments=ARGUMENTS | {"x": X.astype(object)})
    write(tmp_path)


ARGUMENTS = {"out": X, "x": X, "factor": np.float32(3), "n": np.int32(64)}


def _with(**changed):
    return {"arguments": ARGUMENTS | changed}


REFUSED = {
    "list": ({"arguments": list(ARGUMENTS.values())}, "arguments: it is a list: pass a dict"),
    "size": (_with(n=64), "'n' is a int: pass a NumPy array, or a scalar"),
    "byte order": (_with(x=X.astype(">f4")), r"'x' has the dtype >f4: .*x.astype\(np.float32\)"),
    "object": (_with(x=X.astype(object)), "'x' has the dtype object: convert it"),
    "complex": (_with(factor=np.complex64(1)), "'factor' has the dtype complex64: convert it"),
    "masked": (_with(x=np.ma.array(X)), r"'x' is masked: pass x.filled\("),
    "no axes": (_with(n=np.array(64)), r"'n' is an array without axes: pass n\[\(\)\]"),
    "values": ({"parameters": {"BLOCK": [[16]]}}, r"parameters: BLOCK: \[16\] is neither"),
    "constraint": ({"constraints": [len]}, "constraints: .* is neither"),
    "partial": ({"reference": partial(scale)}, "reference: .* written with def"),
    "bytes": ({"source": SOURCE.encode()}, "source: it is a bytes: pass the kernel's text"),
    "unicode": ({"source": SOURCE + "// \ud800"}, r"baseline.cl:\d+ would not be valid Unicode"),
    "outputs": ({"outputs": ["y"]}, "'y' is no array among the arguments"),
    "untyped": (
        {"arguments": {"out": X, "x": X, "factor": 3.0, "n": np.int32(64)}},
        r"'factor' is a float: pass .* np.float32\(0.5\)",
    ),
    "no size": ({"arguments": {"out": X, "x": X}}, "no integer scalar .*: add one"),
    "name": ({"arguments": {"../x": X, "n": np.int32(64)}, "outputs": []}, "'../x' is no name"),
    "lambda": ({"reference": lambda x: x}, "reference: .* written with def"),
    "baseline": ({"baseline": {"BLOK": 16}}, "baseline: 'BLOK' is none of the parameters"),
    "enum": ({"baseline": {"HOW": "never"}}, "baseline: HOW has no value 'never'"),
    "language": ({"language": "hip"}, "language='hip': there are: "),
    "unused": ({"parameters": {"BLOCK": [16], "HOW": ["twice"], "Z": [1]}}, r"spec.yaml:\d+.*'Z'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_form_in_a_spec_is_refused(tmp_path, name):
    changed, message = REFUSED[name]
    with pytest.raises(SpecError, match=message):
        write(tmp_path, **changed)


@pytest.mark.slow
def test_it_is_tuned(tmp_path):
    result = kw.tune(write(tmp_path / "spec"), trials=2, run_dir=tmp_path / "run")
    assert set(result.best) == {"BLOCK", "HOW"}
    assert [one.shape for one in result.speedups] == [{"n": 64}]
