"""A T1 file as a spec: parameters, conditions, launch, arguments; what is refused, and where."""

import json

import pytest

from tests.cluster.kernels import kernelwright
from tuner.drafts.t1 import import_t1
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment

KERNEL = """\
#ifdef kernel_tuner
__constant__ float weights[5];
extern "C" __global__ void blur(float *out, const float *in, float gain, int width) {
  int x = blockIdx.x * bx * tile + threadIdx.x * tile, y = blockIdx.y * block_size_y + threadIdx.y;
  for (int i = 0; i < tile && x + i < width; ++i)
    out[y * width + x + i] = gain * weights[radius] * in[y * width + x + i] + (how == how_wide);
}
#endif
"""


def problem():
    def parameter(name, kind, values, **more):
        return {"Name": name, "Type": kind, "Values": values, **more}

    return {
        "General": {"BenchmarkName": "blur"},
        "ConfigurationSpace": {
            "TuningParameters": [
                parameter("bx", "int", "[16, 32.0, 64]", Default=32),
                parameter("block_size_y", "uint", "list(range(1, 3))"),
                parameter("tile", "int", "[2**i for i in range(3)]"),
                parameter("radius", "int", "[2]"),
                parameter("padded", "bool", "[0, 1]"),
                parameter("how", "string", "['plain', 'wide']"),
            ],
            "Conditions": [
                {"Parameters": ["bx", "tile"], "Expression": "bx*tile <= 128 or padded == 1"}
            ],
        },
        "KernelSpecification": {
            "Language": "CUDA",
            "CompilerOptions": ["--use_fast_math"],
            "KernelName": "blur",
            "KernelFile": "blur.cu",
            "LocalSize": {"X": "bx", "Y": "block_size_y"},
            "GlobalSize": {"X": "(1024 // bx) // tile", "Y": "512 // block_size_y", "Z": "1"},
            "GridDivX": ["bx", "tile"],
            "ProblemSize": [1024, 512],
            "Arguments": [
                {"Name": "out", "Type": "float4", "MemoryType": "Vector", "Size": 131072}
                | {"AccessType": "WriteOnly", "FillType": "Constant", "FillValue": 0.0},
                {"Name": "in", "Type": "float", "MemoryType": "Vector"}
                | {"Size": "ProblemSize[0] * 512 + max(radius) - 1", "FillType": "Random"}
                | {"AccessType": "ReadOnly"},
                {"Name": "weights", "Type": "float", "MemoryType": "Vector", "Size": 5}
                | {"MemType": "Constant", "AccessType": "ReadOnly"},
                {"Name": "gain", "Type": "float", "MemoryType": "Scalar", "FillValue": 2},
                {"Name": "width", "Type": "int32", "MemoryType": "Scalar", "FillValue": 1024},
            ],
        },
    }


def write(folder, data):
    (folder / "blur.cu").write_text(KERNEL)
    (folder / "problem.json").write_text(json.dumps(data))
    return folder / "problem.json"


def test_a_problem_becomes_a_spec(tmp_path):
    spec, guesses = import_t1(write(tmp_path, problem()), tmp_path / "spec")
    experiment = load_experiment(spec)
    template = experiment.template
    assert template.parameters == {
        "bx": (16, 32, 64),
        "block_size_y": (1, 2),
        "tile": (1, 2, 4),
        "radius": (2,),
        "padded": (False, True),
        "how": ("plain", "wide"),
    }
    assert [one.text for one in template.constraints] == ["bx * tile <= 128 or padded == 1"]
    assert [one.text for one in template.launch.grid] == [
        "ceil_div(problem_size_x, (bx) * (tile))",
        "ceil_div(problem_size_y, (block_size_y))",
    ]
    assert [one.text for one in template.launch.block] == ["bx", "block_size_y"]
    assert [one.text for one in experiment.kernel.launch.block] == ["32", "1"]
    assert experiment.kernel.options == ("--use_fast_math",)
    assert experiment.shapes.tune[0].symbols == {"problem_size_x": 1024, "problem_size_y": 512}
    kinds = [(a.name, a.kind, a.dtype, [e.text for e in a.shape]) for a in experiment.arguments]
    assert kinds == [
        ("out", "out", "float32", ["524288"]),
        ("in", "in", "float32", ["524289"]),
        ("weights", "constant", "float32", ["5"]),
        ("gain", "scalar", "float32", []),
        ("width", "scalar", "int32", []),
    ]
    assert template.source.text == f"#define kernel_tuner 1\n{KERNEL}"
    assert guesses == ()


def test_without_problem_sizes_scalars_name_the_shape_and_global_sizes_the_grid(tmp_path):
    data = problem()
    kernel = data["KernelSpecification"]
    del kernel["ProblemSize"], kernel["GridDivX"]
    kernel["GlobalSizeType"] = "OpenCL"
    kernel["GlobalSize"] = {"X": "1024 // tile", "Y": "512"}
    kernel["Arguments"][1]["Size"] = 524288
    del kernel["Arguments"][0]["AccessType"]
    result = kernelwright("import", write(tmp_path, data), "-o", tmp_path / "spec")
    guess = "out is read and written, since its AccessType is not given"
    assert result.stderr == ""
    assert result.stdout == f"{tmp_path / 'spec' / 'spec.yaml'}\nguess: {guess}\n"
    assert f"# guess: {guess}\n" in (tmp_path / "spec" / "spec.yaml").read_text()
    experiment = load_experiment(tmp_path / "spec" / "spec.yaml")
    assert experiment.shapes.tune[0].symbols == {"width": 1024}
    assert [one.text for one in experiment.template.launch.grid] == [
        "ceil_div(1024 // tile, bx)",
        "ceil_div(512, block_size_y)",
    ]


def test_a_spec_that_must_be_corrected_is_named_with_its_guesses(tmp_path):
    data = problem()
    indexed = {"Name": "rows", "Type": "int32", "MemoryType": "Vector", "Size": 131072}
    data["KernelSpecification"]["Arguments"].append(indexed)
    data["KernelSpecification"]["Arguments"][1] |= {"FillType": "Constant", "FillValue": 1.0}
    path = write(tmp_path, data)
    kernel = KERNEL.replace("int width)", "int width, int *rows)")
    (tmp_path / "blur.cu").write_text(kernel.replace("in[", "in[rows[0] + ", 1))
    result = kernelwright("import", path, "-o", tmp_path / "spec")
    spec = tmp_path / "spec" / "spec.yaml"
    assert result.returncode == 2
    assert result.stdout.splitlines() == [
        str(spec),
        "guess: in holds random numbers, not its FillValue everywhere",
        "guess: rows is read and written, since its AccessType is not given",
    ]
    assert f"{spec} needs to be corrected: edit it, then run: kernelwright val" in result.stderr
    assert "'rows' is used as an index" in result.stderr


def changed(*path, value):
    data = problem()
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return data


SPACE, PARAMETERS = "ConfigurationSpace", "TuningParameters"
TARGET = "KernelSpecification"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "the file is no object: is it a T1 file"),
        ({}, "ConfigurationSpace is missing: is it a T1 file"),
        (changed(TARGET, "Language", value="Vulkan"), "Language: Vulkan is not supported"),
        (changed(TARGET, "Language", value=3), "Language has an unexpected type, int"),
        (changed(TARGET, "Arguments", value=None), "Arguments is missing: a spec needs them"),
        (
            changed(TARGET, "Arguments", 4, "FillValue", value=float("inf")),
            r"Arguments\[4\].FillValue: inf is no int32",
        ),
        (
            changed(SPACE, PARAMETERS, 0, "Name", value="\ud800"),
            r"baseline.cu:\d+ would not be valid Unicode",
        ),
        (changed(TARGET, "KernelFile", value="gone.cu"), "KernelFile: no such file: .*gone.cu"),
        (
            changed(TARGET, "Arguments", 0, "Type", value="custom"),
            r"Arguments\[0\].Type: custom types are not supported",
        ),
        (changed(TARGET, "Arguments", 0, "Size", value="n + 1"), r"Arguments\[0\].Size: .*'n'"),
        (
            changed(SPACE, PARAMETERS, 0, "Values", value="__import__('os')"),
            r"TuningParameters\[0\].Values: .* is no list of values: write \[1, 2, 4\]",
        ),
        (changed(SPACE, PARAMETERS, 0, "Values", value="range(10**9)"), "is no list of values"),
        (changed(SPACE, PARAMETERS, 0, "Values", value="[0.5]"), "0.5 is neither a bool"),
        (
            changed(SPACE, "Conditions", 0, "Expression", value="bx / 2 > 8"),
            r"Conditions\[0\].Expression: .*write // for a whole quotient",
        ),
    ],
)
def test_an_error_names_the_key(data, message, tmp_path):
    with pytest.raises(SpecError, match=rf"problem\.json: .*{message}"):
        import_t1(write(tmp_path, data), tmp_path / "spec")
    assert not (tmp_path / "spec").exists()
