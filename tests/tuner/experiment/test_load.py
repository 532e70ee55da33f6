"""Loading: a sound spec whole, an unsound one with every problem, each clear and in its place."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tuner.experiment import specs
from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_argument, resolve_arguments
from tuner.experiment.array_file import check_array_file
from tuner.experiment.constants import constant_scalars
from tuner.experiment.contents import FromFile, Integers, Tolerance, Ulp
from tuner.experiment.load import dump_resolved, load_experiment, load_resolved
from tuner.experiment.model import Argument, Memset, ShapeBinding
from tuner.experiment.odd_shapes import odd_shapes
from tuner.experiment.problems import SpecProblems
from tuner.expressions import Expression
from workers.inputs import fill


def array_file(array):
    """What numpy.save writes."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def said(path):
    """The problems of the spec at ``path``, as ``file:line: message``."""
    with pytest.raises(SpecProblems) as raised:
        load_experiment(path)
    assert raised.value.exit_code == 2
    return [
        f"{p.file.rpartition('/')[2]}:{p.mark.line}: {p.message}" for p in raised.value.problems
    ]


def test_a_sound_spec(tmp_path):
    experiment = load_experiment(specs.write(tmp_path))
    assert experiment.kernel.source.text == specs.KERNEL
    assert experiment.kernel.launch.block == (Expression.parse(64),)
    assert experiment.shapes.tune[1] == ShapeBinding({"n": 4096}, 2.0)
    assert experiment.reference.function == "scale"
    assert experiment.template.parameters["MODE"] == ("plain", "wide")
    assert experiment.template.launch.block == (Expression.parse("BLOCK"),)
    assert experiment.arguments[3].value == 1.5
    assert experiment.arguments[0].tolerance == Tolerance(rtol=1e-5, atol=1e-5)


def test_a_sound_cuda_spec_uses_the_whole_format(tmp_path):
    experiment = load_experiment(specs.write(tmp_path, specs.CUDA_SPEC))
    assert experiment.kernel.launches[0] == Memset(memset="sums", byte=0)
    assert experiment.kernel.launches[2].entry == "finish"
    assert experiment.arguments[0].compare == Ulp(ulp=2)
    lo, hi = Expression.parse(0), Expression.parse("n")
    assert experiment.arguments[5].values == Integers(integers=(lo, hi))


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        (b"root:x:0:0", "is not a complete .npy file of numbers"),
        (b"", "is not a complete .npy file of numbers"),
        (array_file(np.zeros(1000))[:-8], "is not a complete .npy file of numbers"),
        (array_file(np.array(["a"] * 1000)), "is not a complete .npy file of numbers"),
        (array_file(np.zeros((1000, 1))), "of shape [1000, 1], but 'x' has shape [1000] at n=1"),
        (array_file(np.zeros(1000)), "of shape [1000], but 'x' has shape [4096] at n=4096"),
    ],
)
def test_a_file_of_contents_must_fit_every_shape(tmp_path, contents, complaint):
    (tmp_path / "x.npy").write_bytes(contents)
    text = specs.SPEC.replace("range: [-3, 3]", "values: {file: x.npy}")
    (problem,) = said(specs.write(tmp_path, text))
    assert problem.startswith("spec.yaml:10: ")
    assert complaint in problem


def around_1000(text):
    """A spec of one shape in a domain of few, so that all of it is searched for odd ones."""
    text = re.sub(r"  tune:.*\n  held_out:.*\n", "  tune: [{n: 1000}]\n", text)
    return text.replace('["1 <= n", "n <= 65536"]', '["900 <= n", "n <= 1100"]')


def test_a_file_of_contents_that_fits_is_named_absolutely_and_no_odd_shape_changes_it(tmp_path):
    (tmp_path / "x.npy").write_bytes(array_file(np.zeros(1000, np.int8)))
    text = around_1000(specs.SPEC.replace("range: [-3, 3]", "values: {file: x.npy}"))
    experiment = load_experiment(specs.write(tmp_path, text))
    assert experiment.arguments[1].values == FromFile(file=str(tmp_path / "x.npy"))
    assert odd_shapes(experiment) == ()


def test_a_file_of_fractions_fills_no_integers(tmp_path):
    (tmp_path / "x.npy").write_bytes(array_file(np.zeros(1000)))
    argument = Argument(
        name="x",
        kind="inout",
        dtype="int8",
        shape=(Expression.parse("n"),),
        initial=FromFile(file=str(tmp_path / "x.npy")),
    )
    with pytest.raises(ValueError, match=r"x.npy holds float64, but 'x' is int8"):
        check_array_file(argument, [ShapeBinding({"n": 1000})])


def test_a_template_inline_and_headers(tmp_path):
    (tmp_path / "include" / "deep").mkdir(parents=True)
    (tmp_path / "include" / "deep" / "a.h").write_text("#define A 1\n")
    (tmp_path / "include" / "unused.h").write_text("#define B 1\n")
    inline = "template:\n  " + specs.TEMPLATE.replace("\n", "\n  ")
    text = specs.SPEC.replace("template: template.yaml", inline)
    text = text.replace("entry: scale\n", "entry: scale\n  include_dirs: [include]\n", 1)
    kernel = '#include "deep/a.h"\n' + specs.KERNEL
    experiment = load_experiment(specs.write(tmp_path, text, scale__cl=kernel))
    assert experiment.kernel.headers == (("deep/a.h", "#define A 1\n"),)
    apart = load_experiment(specs.write(tmp_path))
    assert experiment.template == apart.template


def test_a_signature_that_directives_choose_is_left_to_the_compiler(tmp_path):
    kernel = specs.KERNEL.replace("int n, float factor)", "int n\n#ifdef MORE\n, int m\n#endif\n)")
    text = specs.SPEC.replace("template: template.yaml\n", "")
    load_experiment(specs.write(tmp_path, text, scale__cl=kernel))


UP = "../" * 60

# What is replaced in the sound spec, by what, and the one message that must follow.
BAD = [
    ("version: 1", "version: 2", "spec.yaml:1: should be 1, not 2"),
    ("name: scale\nk", "name: 'a b'\nk", "spec.yaml:2: 'a b' is not a name"),
    ("entry: scale", "entri: scale", "unknown key 'entri'; did you mean 'entry'?"),
    ("cost: {", "costs: {", "unknown key 'costs'; did you mean 'cost'?"),
    ("language: opencl", "language: hip", "spec.yaml:4: 'hip': HIP is not supported yet"),
    ("language: opencl", "language: opencll", "did you mean 'opencl'?"),
    ("source: scale.cl", "source: gone.cl", "spec.yaml:5: no such file"),
    ("name: scale\nk", f"name: {'a' * 81}\nk", "spec.yaml:2: 'aaa|81 characters; at most 80"),
    ("source: scale.cl", 'source: ""', "spec.yaml:5: names no file: write its path"),
    ("source: scale.cl", r'source: "a\0b"', "is no path: it holds a zero byte"),
    ("template: template.yaml", 'template: ""', "names no file: write its path"),
    ("reference.py:scale", r'"a\0b.py:f"', "is no path: it holds a zero byte"),
    ('["ceil_div(n, 64)"]', "null", "spec.yaml:7: an expression is text, an integer, true or"),
    ('["ceil_div(n, 64)"]', "{}", "true or false, not a mapping"),
    ("block: [64]", "block: [64], shared_bytes: null", "true or false, not nothing"),
    ("block: [64]", "block: [[64]]", "true or false, not a list"),
    ("source: scale.cl", "source: .", "not a regular file"),
    ("source: scale.cl", "source: " + "x" * 300, "File name too long"),
    ("entry: scale\n", "entry: scala\n", "no kernel 'scala' in scale.cl; did you mean 'scale'?"),
    ("entry: scale\n", "entry: 'a;b'\n", "is not a kernel's name"),
    ("entry: scale\n", "entry: 'scale<1>'\n", "OpenCL has no C++ names"),
    ("ceil_div(n, 64)", "ceil_div(m, 64)", "spec.yaml:7: unknown symbol 'm'; there are: n"),
    ("ceil_div(n, 64)", "ceildiv(n, 64)", "did you mean 'ceil_div'?"),
    ("ceil_div(n, 64)", "n // (n - 1000)", "division by zero"),
    ("ceil_div(n, 64)", "n - 1000", "is 0 at n=1000; at least 1"),
    ("ceil_div(n, 64)", "n * n * n * n", "at most 2**31"),
    ("ceil_div(n, 64)", "BLOCK", "'BLOCK' is a parameter of the template"),
    ("block: [64]", "block: [1, 2, 3, 4]", "takes 1 to 3 values, not 4"),
    ("block: [64]", "block: [64], cooperative: true", "no cooperative launch"),
    ("block: [64]", "block: [64], dependent: true", "no dependent launch"),
    ("block: [64]", "block: [64], cluster: [2]", "no clusters"),
    ("block: [64]", "block: [64], shared_bytes: 4", "declare their local memory"),
    ("  entry: scale\n", "  entry: scale\n  options: [-DA=1]\n", "defines of a template"),
    ("  entry: scale\n", "  entry: scale\n  options: [-O9]\n", "not among the options allowed"),
    ("  entry: scale\n", "  entry: scale\n  include_dirs: [gone]\n", "no such folder"),
    ("  entry: scale\n", f"  entry: scale\n  include_dirs: [{'x' * 300}]\n", "name too long"),
    ("  entry: scale\n", "  entry: scale\n  include_dirs: [/etc]\n", "outside this spec's"),
    ("  entry: scale\n", f"  entry: scale\n  include_dirs: ['{UP}etc']\n", "/etc is outside"),
    ("  entry: scale\n", "  entry: scale\n  headers: [[a, b]]\n", "read from include_dirs"),
    ("  launch: {", "  launches: []\n  lunch: {", "did you mean 'launch'?"),
    ("kind: out", "kind: output", "spec.yaml:9: should be 'in', 'out'"),
    ("kind: out", "kind: texture", "a texture is not supported yet"),
    ("range: [-3, 3]", "compare: exact", "'compare' does not apply to an argument of kind in"),
    ("dtype: float32, shape: [n], t", "shape: [n], t", "missing key 'dtype'"),
    ("dtype: float32, shape: [n], t", "dtype: half, shape: [n], t", "did you mean 'float16'?"),
    ("dtype: float32, shape: [n], t", "dtype: float, shape: [n], t", "did you mean 'float32'?"),
    ("dtype: float32, shape: [n], t", "dtype: bfloat16, shape: [n], t", "OpenCL has no bfloat16"),
    ("shape: [n], t", "shape: [n - 1000], t", "is 0; at least 1 is needed"),
    ("shape: [n], t", "shape: [n], strides: [0], t", "overlap"),
    ("shape: [n], t", "shape: [n], strides: [1, 1], t", "2 strides for 1 dimensions"),
    ("shape: [n], t", "shape: [n, 2**40, 2**20], t", "the buffer takes|overflow"),
    ("shape: [n], t", "t", "missing key 'shape'"),
    ("shape: [n], t", "shape: [device.warp_size], t", "the device cannot be read here"),
    ("tolerance: {rtol: 1e-5, atol: 1e-5}", "tolerance: {rtol: 1e-5}", "missing key 'atol'"),
    ("tolerance: {rtol: 1e-5, atol: 1e-5}", "tolerance: {rtol: -1, atol: 0}", "greater than"),
    ("{rtol: 1e-5, atol", "{rtol: .inf, atol", "spec.yaml:9: should be less than 1, not inf"),
    ("{rtol: 1e-5, atol", "{rtol: .nan, atol", "spec.yaml:9: should be less than 1, not nan"),
    ("{rtol: 1e-5, atol", "{rtol: 1, atol", "spec.yaml:9: should be less than 1, not 1"),
    ("atol: 1e-5}", "atol: .inf}", "spec.yaml:9: should be a finite number, not inf"),
    ("atol: 1e-5}", "atol: .nan}", "spec.yaml:9: should be a finite number, not nan"),
    ("tolerance: {rtol: 1e-5, atol: 1e-5}", "compare: {ulps: 1}", "did you mean 'ulp'?"),
    ("tolerance: {rtol: 1e-5, atol: 1e-5}", "compare: clse", "did you mean 'close'?"),
    ("tolerance: {rtol", "compare: exact, tolerance: {rtol", "tolerance does not apply"),
    ("range: [-3, 3]", "range: [3, -3]", "range must be [low, high]"),
    ("range: [-3, 3]", "range: [1, 2, 3]", "needs at most 2 entries"),
    ("range: [-3, 3]", "range: [1]", "spec.yaml:10: needs 2 values, not 1"),
    ("range: [-3, 3]", "range: []", "spec.yaml:10: needs 2 values, not 0"),
    ("range: [-3, 3]", "values: {integers: [1]}", "needs 2 values, not 1"),
    ("range: [-3, 3]", "range: [-1e39, 1e39]", "range ends at -1e+39, which float32 does not hold"),
    ("range: [-3, 3]", "range: [1e-320, 1e-310]", "which float32 rounds to 0: write 0, or"),
    ("value: n}", "value: 7, range: [0, 2**31]}", "should be a number"),
    ("value: n}", "value: 7, range: [0, 2147483648]}", "ends at 2147483648.0, which int32"),
    ("value: n}", "value: 7, range: [0.5, 9]}", "range ends at 0.5, which int32 does not hold"),
    ("range: [-3, 3]", "align: 12", "power of two"),
    ("range: [-3, 3]", "align: 2", "smaller than one float32"),
    ("range: [-3, 3]", "values: permutation", "fills with integers, but the type is float32"),
    ("range: [-3, 3]", "values: nromal", "did you mean 'normal'?"),
    ("range: [-3, 3]", "values: {pyton: a.py:f}", "did you mean 'python'?"),
    ("range: [-3, 3]", "values: {python: reference.py:f}", "no function 'f' in reference.py"),
    ("range: [-3, 3]", "values: {python: reference.py:make}", "make() wants 'size'"),
    ("range: [-3, 3]", "values: {file: gone.npy}", "no such file"),
    ("range: [-3, 3]", "initial: zeros", "'initial' does not apply"),
    ("range: [-3, 3]", "align: true", "should be an integer, not true"),
    ("value: n}", "value: n + 0.5}", "is a fraction, but int32"),
    ("value: n}", "value: n / 2}", "'//' divides whole numbers"),
    ("value: n}", "value: 2**40}", "outside int32"),
    ("value: n}", "value: 1.5}", "is a fraction, but int32 holds integers"),
    ("value: n}", "valeu: n, value: n}", "did you mean 'value'?"),
    (",   value: n}", "}", "missing key 'value'"),
    ("dtype: int32, ", "dtype: int64, ", "is int32 (int), but 'n' is int64"),
    ("name: x, ", "name: out, ", "duplicate argument name 'out'"),
    ("name: x, ", "name: in, ", "take **rest, and rest['in'], which no parameter can be called"),
    ("kind: in, ", "kind: constant, symbol: s, ", "cannot set a program's constants"),
    ("  - {name: n,      kind: scalar, dtype: int32,   value: n}\n", "", "takes 4 parameters"),
    ("1 <= n", "1 <= m", "unknown symbol 'm'"),
    ("1 <= n", "n = 1", "write '==' to compare"),
    ("1 <= n", "n >= 1000", "spec.yaml:16: outside the domain: 'n >= 1000' does not hold"),
    ("{n: 1000}", "{n: 0}", "a size is at least 1"),
    ("{n: 1000}", "{n: -5}", "a size is at least 1"),
    ("{n: 1000}", "{n: 1000.5}", "not 1000.5"),
    ("{n: 1000}", "{n: abc}", "neither a size nor an element type"),
    ("{n: 777}", "{m: 777, n: 777}", "the first shape does not bind 'm'"),
    ("{n: 777}", "{n: 1000}", "the same shape as tune[0]"),
    ("{n: 777}", "{}", "needs at least 1 entries"),
    ("weight: 2", "weight: 0", "should be greater than or equal to 0.000000001"),
    ("weight: 2", "weight: 1e308", "should be less than or equal to 1000000000"),
    ("{n: 1000}, {n: 4096, weight: 2}", "", "needs at least 1 entries"),
    ("reference.py:scale", "gone.py:scale", "no such file"),
    ("reference.py:scale", "reference.py", "not of the form file.py:function"),
    ("reference.py:scale", "x" * 5000, "xxx...' is not of the form"),
    ("reference.py:scale", "reference.py:scle", "did you mean 'scale'?"),
    ("bytes: 8 * n", "bytes: 8 * n - 70000", "at least 0 is needed"),
    ("trials: 10", "trials: '10'", "should be an integer, not '10'"),
    ("trials: 10", "trials: 0", "greater than or equal to 1"),
    ("seconds: 5", "seconds: .inf", "should be less than or equal to 1000000000"),
    ("seconds: 5", "seconds: 1e308", "should be less than or equal to 1000000000"),
    ("seconds: 5", "seconds: .nan", "should be less than or equal to 1000000000, not nan"),
    ("trials: 10", "device_seconds: .inf", "should be less than or equal to 1000000000"),
    ("trials: 10", f"trials: {10**30}", "should be less than or equal to 1000000000"),
    ("trials: 10", "strategy: bayes", "should be 'auto'"),
    ("trials: 10", "trails: 10", "did you mean 'trials'?"),
    ("template: template.yaml", "template: gone.yaml", "no such file"),
    ("template: template.yaml", "template: 3", "should be a mapping, not 3"),
    ("cost:", '"\\ud800": 1\ncost:', "spec.yaml:18: half of a surrogate pair is not text"),
    ("{n: 1000}", r'{n: 1000, "a\udfff": [1]}', "spec.yaml:15: half of a surrogate pair"),
    ("cost:", "cost: {}\ncost:", "duplicate key 'cost', first on line 18"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[f"{b[1][:40]}" for b in BAD])
def test_one_mistake_is_one_clear_message(tmp_path, old, new, message):
    assert old in specs.SPEC
    problems = said(specs.write(tmp_path, specs.SPEC.replace(old, new, 1)))
    assert len(problems) == 1, problems
    assert any(part in problems[0] for part in message.split("|")), problems
    assert problems[0].startswith("spec.yaml:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kind: in,", "kind: input,"),
        ("name: x,", "nam: x,"),
        ('grid: ["ceil_div(n, 64)"]', 'grid: ["ceil_div(n 64)"]'),
        ("language: opencl", "language: opncl"),
        ("tune: ", "tun: "),
        ("arguments:", "argument:"),
    ],
)
def test_a_mistake_in_what_is_required_hides_no_other(tmp_path, old, new):
    text = specs.SPEC.replace("{n: 777}", "{n: 0}").replace(old, new, 1)
    problems = said(specs.write(tmp_path, text))
    assert len(problems) == 2, problems
    assert "n=0: a size is at least 1" in problems[1]


def test_a_wrong_size_is_told_once_where_others_of_its_shape_are_right(tmp_path):
    text = specs.SPEC.replace("{n: 1000}, {n: 4096, weight: 2}", "{n: 1000, m: 1.5}")
    (problem,) = said(specs.write(tmp_path, text.replace("{n: 777}", "{n: 777, m: 2}")))
    assert "not 1.5" in problem
    text = specs.SPEC.replace("{n: 1000}, {n: 4096, weight: 2}", "{n: 1000, m: 2}")
    (problem,) = said(specs.write(tmp_path, text.replace("{n: 777}", "{n: 777, m: 1.5}")))
    assert "not 1.5" in problem


def test_a_source_in_another_language_is_named_with_the_remedy(tmp_path):
    kernel = specs.KERNEL.replace("__kernel", "__global__").replace("__global float", "float")
    (problem,) = said(specs.write(tmp_path, scale__cl=kernel))
    said_of_it = "spec.yaml:6: scale.cl has a kernel of CUDA (__global__): write `language: cuda`"
    assert problem == said_of_it
    both = f"#ifdef __CUDACC__\n{kernel}\n#else\n{specs.KERNEL}\n#endif\n"
    load_experiment(specs.write(tmp_path, scale__cl=both))


def test_local_memory_among_the_parameters_is_named_with_the_remedy(tmp_path):
    kernel = specs.KERNEL.replace("float factor)", "float factor, __local float *tmp)")
    (problem, *_) = said(specs.write(tmp_path, scale__cl=kernel))
    assert problem.endswith("local memory (tmp) is not passed: declare it inside the kernel")


def test_a_float_may_follow_from_the_shape(tmp_path):
    experiment = load_experiment(specs.write(tmp_path, FOLLOWS))
    *_, factor = resolve_arguments(experiment, {"n": 4})
    assert factor.value == 0.5
    assert constant_scalars(experiment) == ()
    constant = specs.SPEC.replace("value: 1.5", "value: 3.0 / 2")
    *_, factor = load_experiment(specs.write(tmp_path, constant)).arguments
    assert factor.value == 1.5


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1.5 / m", "unknown symbol 'm'; there are: n"),
        ("1.5 / (n - 1000)", "'1.5 / (n - 1000)' has no value at n=1000"),
        ("sine(n) / 2", "unknown function 'sine'"),
        ("1.5 / n, range: [0, 1]", "the value follows from the shape; limit the sizes in `shapes"),
        ("1.5 / n, fixed: true", "'fixed' does not apply: the value follows from the shape; leave"),
    ],
)
def test_a_float_that_cannot_follow_is_one_clear_message(tmp_path, value, message):
    problems = said(specs.write(tmp_path, FOLLOWS.replace("1.5 / (n - 1)", value)))
    assert len(problems) == 1, problems
    assert message in problems[0]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("{GFLOP/s: flops / second}", "unknown quantity 'second'; did you mean 'seconds'?"),
        ("{x: joules / n}", "'joules' cannot be read: OpenCL has no energy counter"),
        ("{x: watts / n}", "unknown quantity 'watts'; there are: bytes, flops, n, seconds"),
        ("{x: 1 / (n - 777)}", "'1 / (n - 777)' has no value at n=777"),
        ("{x: 1 if n else 2}", "outside the grammar of real numbers"),
        ("{'x y': n / seconds}", "'x y' is not a name that may stand here: it must match ^[A-Z"),
        ("{x: }", "an expression is text, not nothing"),
        ("{speedup: n / seconds}", "'speedup' is a column of the tables: rename the metric"),
    ],
)
def test_a_metric_that_cannot_be_computed_is_one_clear_message(tmp_path, metrics, message):
    problems = said(specs.write(tmp_path, f"{specs.SPEC}metrics: {metrics}\n"))
    assert len(problems) == 1, problems
    assert message in problems[0]
    assert problems[0].startswith(f"spec.yaml:{specs.SPEC.count(chr(10)) + 1}:")


def test_joules_are_refused_by_the_objective_only_where_they_can_be_measured(tmp_path):
    metrics = "metrics: {x: joules / seconds}\n"
    (problem,) = said(specs.write(tmp_path, f"{specs.CUDA_SPEC}{metrics}"))
    assert "'joules' are measured where the objective is energy or energy_delay" in problem
    energy = f"{metrics}objective: energy\n"
    load_experiment(specs.write(tmp_path, f"{specs.CUDA_SPEC}{energy}"))
    told = "\n".join(said(specs.write(tmp_path, f"{specs.SPEC}{energy}")))
    assert "'joules' cannot be read: OpenCL has no energy counter" in told
    assert "OpenCL has no energy counter: set objective: time" in told


def test_a_metric_needs_the_cost_that_it_reads(tmp_path):
    text = specs.SPEC.replace(", flops: n}", "}") + "metrics: {GFLOP/s: flops / seconds / 1e9}\n"
    assert "'flops' is not known: give cost.flops" in said(specs.write(tmp_path, text))[0]
    text = specs.SPEC.replace("{n: 1000}", "{n: 1000, seconds: 3}").replace(
        "{n: 4096, ", "{n: 4096, seconds: 3, "
    )
    text = text.replace("{n: 777}", "{n: 777, seconds: 3}") + "metrics: {a: n / seconds}\n"
    problems = said(specs.write(tmp_path, text))
    assert "metrics read 'seconds' as a quantity; rename the symbol" in problems[0]


def test_elements_of_another_type_are_at_their_argument(tmp_path):
    spec = specs.SPEC.replace("template: template.yaml\n", "")
    wrong = spec.replace("kind: in,     dtype: float32", "kind: in,     dtype: float64")
    line = wrong[: wrong.index("float64")].count("\n") + 1
    expected = "parameter 'x' points to float, the argument says float64"
    assert said(specs.write(tmp_path, wrong)) == [f"spec.yaml:{line}: {expected}"]


BAD_TEMPLATES = [
    ("entry: scale", "entry: scal", "no kernel 'scal' in scale_template.cl"),
    ("source: scale_template.cl", "source: gone.cl", "no such file"),
    ("[32, 64]", "[32, 32]", "duplicate value 32"),
    ("[32, 64]", "[]", "needs at least 1 entries"),
    ("[32, 64]", "[32, true]", "all integers, all bools, or all names"),
    ("[32, 64]", "[32, 6.4]", "not 6.4"),
    ("[plain, wide]", "[plain, 'wi-de', wide]", "cannot be part of a macro's name"),
    ("  MODE:", "  UNUSED: [1]\n  MODE:", "parameter 'UNUSED' is used neither"),
    ("  MODE:", "  n: [1]\n  MODE:", "'n' is already an argument"),
    ("  MODE:", "  int: [1]\n  MODE:", "'int' is reserved"),
    ("  MODE:", "  device: [1]\n  MODE:", "'device' is reserved"),
    ("{FULL:", "{BLOCK:", "'BLOCK' is already a parameter"),
    ("{FULL:", "{MODE_wide:", "the macro of MODE's value wide"),
    ("MODE == 'wide'", "MODE == 'wise'", "MODE has no value 'wise'; did you mean 'wide'?"),
    ("MODE == 'wide'", "MODE", "takes numbers, not names"),
    ("ITEMS == 1", "ITEM == 1", "did you mean 'ITEMS'?"),
    ("ITEMS == 1", "ITEMS < device.warp", "device has no 'warp'"),
    ("n % BLOCK == 0", "MODE", "is a name, not a number"),
    ("block: BLOCK}", "block: BLOCK, arguments: [out, y, n, factor]}", "no argument 'y'"),
    ("block: BLOCK}", "block: BLOCK, arguments: [x, out, n, factor]}", "in the order out, x"),
    ("launch: {", "scratch: [{name: tmp, dtype: float32, shape: [n]}]\nlaunch: {", "takes 4 param"),
    ("launch: {", "options: [{flag: -cl-std, value: ITEMS}]\nlaunch: {", "use 'when'"),
    ("launch: {", "options: [{flg: -w}]\nlaunch: {", "did you mean 'flag'?"),
    ("launch: {grid:", "launch: {gird:", "did you mean 'grid'?"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_TEMPLATES)
def test_one_mistake_in_a_template_is_shown_in_its_own_file(tmp_path, old, new, message):
    assert old in specs.TEMPLATE
    text = specs.TEMPLATE.replace(old, new, 1)
    problems = said(specs.write(tmp_path, template__yaml=text))
    assert len(problems) == 1, problems
    assert message in problems[0]
    assert problems[0].startswith("template.yaml:")


def test_cuda_mistakes(tmp_path):
    for old, new, message in (
        ("scale<{T}, 4>", "scale", "'scale' is a template: name an instance"),
        ("scale<{T}, 4>", "scale<{S}, 4>", "'{S}' is neither a parameter nor a symbol"),
        ("memset: sums", "memset: x", "of kind in: it may not be written"),
        ("memset: sums", "memset: sum", "did you mean 'sums'?"),
        ("[sums, n]", "[sums, table]", "no argument 'table' can be passed"),
        ("entry: finish", "entry: finnish", "did you mean 'finish'?"),
        ("--use_fast_math", "-use_fast_math", "write --use_fast_math"),
        ("--std=c++17", "--std=c++98", "takes one of c++11"),
        (", symbol: t", "", "missing key 'symbol'"),
        ("T: bfloat16", "T: 7", "T: '7' here but 'float16' in the first shape"),
        ("integers: [0, n]", "integers: [n, 0]", "the lowest value, 100, is above the highest, 0"),
    ):
        assert old in specs.CUDA_SPEC
        problems = said(specs.write(tmp_path, specs.CUDA_SPEC.replace(old, new, 1)))
        assert len(problems) == 1, problems
        assert message in problems[0]


def test_all_problems_at_once_each_with_line_and_caret(tmp_path):
    text = specs.SPEC
    for old, new in (
        ("entry: scale\n", "entry: scale\n  launhc: 3\n"),
        ("range: [-3, 3]", "range: [3, -3]"),
        ("1 <= n", "1 <= m"),
        ("{n: 777}", "{n: on}"),
        ("trials: 10", "trials: x"),
    ):
        text = text.replace(old, new, 1)
    template = specs.TEMPLATE.replace("ITEMS == 1", "ITEM == 1")
    path = specs.write(tmp_path, text, template__yaml=template)
    problems = said(path)
    assert [re.sub(r": .*", "", problem) for problem in problems] == [
        "spec.yaml:7",
        "spec.yaml:11",
        "spec.yaml:15",
        "spec.yaml:17",
        "spec.yaml:21",
        "template.yaml:7",
    ]
    with pytest.raises(SpecError) as raised:
        load_experiment(path)
    assert (
        "spec.yaml:7:3: unknown key 'launhc'; did you mean 'launch'?\n"
        "    7 |   launhc: 3\n"
        "      |   ^\n"
    ) in str(raised.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "should be a mapping"),
        (b"[]", "should be a mapping"),
        (b"\xff\xfe", "a.yaml: is not UTF-8 text"),
        (b"a\0b", "a.yaml: is not a text file: it contains a zero byte"),
        (b"a: " + b"x" * (1 << 20), "a.yaml: is larger than"),
        (b"template: t.yaml", "missing key 'kernel'"),
    ],
)
def test_files_that_are_no_spec(tmp_path, data, message):
    path = tmp_path / "a.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError, match=re.escape(message)) as raised:
        load_experiment(path)
    assert str(raised.value).partition("\n")[0].count("a.yaml") == 1


def test_a_missing_spec(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        load_experiment(tmp_path / "gone.yaml")


FOLLOWS = (
    specs.SPEC.replace("value: 1.5", "value: 1.5 / (n - 1)")
    + "metrics: {GFLOP/s: flops / seconds / 1e9}\n"
)
"""A scalar of which the value follows from the shape."""


@pytest.mark.parametrize("text", [specs.SPEC, specs.CUDA_SPEC, FOLLOWS])
def test_the_resolved_spec_needs_no_other_file(tmp_path, text):
    path = specs.write(tmp_path, text)
    experiment = load_experiment(path)
    resolved = dump_resolved(experiment)
    for file in tmp_path.iterdir():
        file.unlink()
    assert load_resolved(resolved) == experiment
    assert "repeats: 100" in resolved
    with pytest.raises(SpecError, match="names the file 'scale"):
        load_resolved(specs.SPEC)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
in_float32 = st.floats(-3.4e38, 3.4e38)


@given(
    rationale=texts,
    header=st.one_of(
        texts, st.lists(texts).map("\n".join), st.sampled_from([" a\n", "\t", "-\n", "\n\x85"])
    ),
    members=st.lists(st.from_regex(r"\A[a-z0-9_]{1,6}\Z"), min_size=1, unique=True),
    sizes=st.sets(st.integers(1, 65536), min_size=2),
    weight=st.floats(1e-3, 1e3),
    value=in_float32,
    tolerance=st.tuples(st.floats(0, 0.99), st.floats(0, 1e9)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(sound, rationale, header, members, sizes, weight, value, tolerance):
    template = replace(
        sound.template,
        rationale=rationale,
        parameters={**sound.template.parameters, "MODE": tuple(members)},
        constraints=(),
    )
    first, *rest = sound.arguments
    first = replace(first, tolerance=Tolerance(rtol=tolerance[0], atol=tolerance[1]))
    rest[2] = replace(rest[2], value=value)
    held_out, *tune = (ShapeBinding({"n": size}, weight) for size in sorted(sizes))
    experiment = replace(
        sound,
        kernel=replace(sound.kernel, headers=(("a.h", header),)),
        arguments=(first, *rest),
        template=template,
        shapes=replace(sound.shapes, tune=tuple(tune), held_out=(held_out,)),
    )
    assert load_resolved(dump_resolved(experiment)) == experiment


@pytest.mark.parametrize("text", ["\n\x85", "a\u2028\n", "\u2029\n\n"])
def test_lines_that_yaml_breaks_elsewhere_are_kept(sound, text):
    experiment = replace(sound, kernel=replace(sound.kernel, headers=(("a.h", text),)))
    assert load_resolved(dump_resolved(experiment)) == experiment


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return load_experiment(specs.write(tmp_path_factory.mktemp("sound")))


EDITS = st.tuples(
    st.integers(0, 2000),
    st.integers(0, 12),
    st.one_of(
        st.text(max_size=4),
        st.sampled_from(
            ["{", "}", "[", "]", ":", "\n", "  ", "*a", "&a ", "!!int ", "'", '"', "- ", "#", "|",
             "null", "1e9", "-1", "99999999999999999999", "n", "(", ")", ", ", "%", "<<: ", "\t"]
        ),
    ),
)  # fmt: skip


@given(edits=st.lists(EDITS, min_size=1, max_size=4), in_template=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spec_with_random_edits_never_fails_unclearly(tmp_path_factory, edits, in_template):
    text = specs.TEMPLATE if in_template else specs.SPEC
    for at, cut, new in edits:
        at %= len(text) + 1
        text = text[:at] + new + text[at + cut :]
    folder = tmp_path_factory.getbasetemp() / "edits"
    folder.mkdir(exist_ok=True)
    path = specs.write(folder)
    spoilt = folder / ("template.yaml" if in_template else "spec.yaml")
    spoilt.write_bytes(text.encode(errors="surrogatepass"))
    try:
        experiment = load_experiment(path)
    except SpecError:
        pass
    else:
        assert load_resolved(dump_resolved(experiment)) == experiment


@given(data=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_refused_clearly(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "random.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError):
        load_experiment(path)


def nodes(data, path=()):
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from nodes(value, (*path, key))
        else:
            yield (*path, key)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "n", "out", "T", "float16", "x +", "1 // 0", "a.py:f", "permutation"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["n", "ulp", "python", "integers", "grid", "memset", "flag", "name"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


@given(data=st.data(), in_template=st.booleans(), cuda=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spec_with_a_value_of_any_other_form_never_fails_unclearly(
    tmp_path_factory, data, in_template, cuda
):
    text = specs.TEMPLATE if in_template else specs.CUDA_SPEC if cuda else specs.SPEC
    spec = yaml.safe_load(text)
    *above, last = data.draw(st.sampled_from([path for path in nodes(spec) if path]))
    place = spec
    for step in above:
        place = place[step]
    place[last] = data.draw(VALUES)
    folder = tmp_path_factory.getbasetemp() / "forms"
    folder.mkdir(exist_ok=True)
    path = specs.write(folder, specs.CUDA_SPEC if cuda and not in_template else specs.SPEC)
    spoilt = folder / ("template.yaml" if in_template else "spec.yaml")
    spoilt.write_text(yaml.safe_dump(spec))
    try:
        experiment = load_experiment(path)
    except SpecProblems as error:
        for problem in error.problems:
            assert problem.mark
            assert not re.search(
                r"Input should|function-|\[type=|keyword argument|\n", problem.message
            )
    else:
        assert load_resolved(dump_resolved(experiment)) == experiment


def seeded(seeds):
    return specs.SPEC.replace("seconds: 5}", f"seconds: 5, seeds: {seeds}}}")


def test_seeds_stand_in_the_spec_or_in_the_results_of_an_earlier_run(tmp_path):
    rows = [
        {"trial": i, "loss": loss, "configuration": {"BLOCK": 32 * (i + 1)}}
        for i, loss in enumerate([2.0, None, 0.5, 0.7, 3.0, 0.9, 0.8, 1.0])
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = load_experiment(specs.write(tmp_path, seeded("results.jsonl"))).search.seeds
    assert [seed["BLOCK"] for seed in found] == [96, 128, 224, 192, 256]
    text = seeded("[{BLOCK: 64, MODE: wide}, {ITEMS: 2, FAST: true}]")
    written = load_experiment(specs.write(tmp_path, text))
    assert written.search.seeds == ({"BLOCK": 64, "MODE": "wide"}, {"ITEMS": 2, "FAST": True})
    assert load_resolved(dump_resolved(written)) == written


def test_a_seed_that_says_nothing_of_the_template(tmp_path):
    path = specs.write(tmp_path, seeded("[{BLOCK: 32}, {BLOK: 64}]"))
    assert said(path) == [
        "spec.yaml:20: the seed sets no parameter of the template; there are: BLOCK, ITEMS, MODE"
    ]


@pytest.mark.parametrize("text", ["not JSON\n", "[]\n", '{"loss": 1.0}\n', '"loss"\n'])
def test_seeds_from_a_file_that_is_no_result(tmp_path, text):
    (tmp_path / "results.jsonl").write_text(text)
    path = specs.write(tmp_path, seeded("results.jsonl"))
    assert "results.jsonl: " in said(path)[0]


def test_seeds_from_a_run_directory_name_the_file_in_it(tmp_path):
    (tmp_path / "run").mkdir()
    path = specs.write(tmp_path, seeded("run"))
    assert "run is a folder: name the results.jsonl of a search in it" in said(path)[0]


def test_headers_beside_the_source_are_recorded_under_the_names_that_includes_resolve_to(tmp_path):
    (tmp_path / "src" / "detail").mkdir(parents=True)
    (tmp_path / "src" / "detail" / "a.h").write_text('#include "../b.h"\n#include <gone.h>\n')
    (tmp_path / "src" / "b.h").write_text("#define B 1\n")
    (tmp_path / "src" / "k.cl").write_text('#include "detail/a.h"\n' + specs.KERNEL)
    text = specs.SPEC.replace("source: scale.cl", "source: src/k.cl")
    experiment = load_experiment(specs.write(tmp_path, text))
    assert [name for name, _ in experiment.kernel.headers] == ["b.h", "detail/a.h"]


def test_an_include_outside_the_allowed_folders_names_the_remedy(tmp_path):
    (tmp_path / "up.h").write_text("#define B 1\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "k.cl").write_text('\n#include "../up.h"\n' + specs.KERNEL)
    text = specs.SPEC.replace("source: scale.cl", "source: src/k.cl")
    spec = specs.write(tmp_path, text)
    with pytest.raises(SpecProblems, match=r"k\.cl:2 includes \.\./up\.h.*add.*'\.\.'"):
        load_experiment(spec)
    spec.write_text(text.replace("src/k.cl\n", "src/k.cl\n  include_dirs: [.]\n"))
    ((name, _),) = load_experiment(spec).kernel.headers
    assert name == "__parent__/up.h"


def test_no_include_reaches_hidden_files_or_out_of_the_folders(tmp_path):
    (tmp_path / "proj" / ".ssh").mkdir(parents=True)
    (tmp_path / "proj" / ".ssh" / "id").write_text("PRIVATE\n")
    (tmp_path / "id").write_text("PRIVATE\n")
    for include in (".ssh/id", "../id", "../../../../../../../../../../etc/hostname"):
        text = f'\n#include "{include}"\n' + specs.KERNEL
        with pytest.raises(SpecProblems, match=r"scale\.cl:2 includes .* outside the source's"):
            load_experiment(specs.write(tmp_path / "proj", specs.SPEC, scale__cl=text))
    hidden = specs.SPEC.replace("entry: scale\n", "entry: scale\n  include_dirs: [.ssh]\n", 1)
    with pytest.raises(SpecProblems, match=r"\.ssh is outside this spec's surroundings"):
        load_experiment(specs.write(tmp_path / "proj", hidden))


FILES = specs.SPEC.replace("range: [-3, 3]}", "values: {file: 'data/x-{n}.npy'}}")


def with_files(folder, spec=FILES):
    (folder / "data").mkdir()
    for n in (1000, 4096, 777):
        np.save(folder / f"data/x-{n}.npy", np.full(n, n, np.float32))
    return specs.write(folder, spec)


def test_a_file_for_each_shape(tmp_path):
    experiment = load_experiment(with_files(tmp_path))
    assert load_resolved(dump_resolved(experiment)) == experiment
    files = [
        resolve_argument(experiment.arguments[1], shape.symbols).fill.file
        for shape in (*experiment.shapes.tune, *experiment.shapes.held_out)
    ]
    assert files == [str(tmp_path / f"data/x-{n}.npy") for n in (1000, 4096, 777)]
    odd = odd_shapes(experiment)
    assert odd
    argument = resolve_argument(experiment.arguments[1], odd[0].symbols)
    values = fill(argument, np.random.default_rng(0), "default", lambda *_: None)
    assert values.shape == argument.shape
    assert set(values.tolist()) == {1000.0}  # the first shape's, repeated


def test_integers_with_a_file_for_each_shape_have_no_odd_shapes(tmp_path):
    spec = FILES.replace(
        "{name: x,      kind: in,     dtype: float32", "{name: x, kind: in, dtype: int32"
    )
    path = with_files(tmp_path, around_1000(spec))
    for file in (tmp_path / "data").iterdir():
        np.save(file, np.load(file).astype(np.int32))
    (tmp_path / "scale.cl").write_text(specs.KERNEL.replace("const float *x", "const int *x"))
    (tmp_path / "scale_template.cl").write_text(
        specs.TEMPLATE_SOURCE.replace("const float *x", "const int *x")
    )
    assert odd_shapes(load_experiment(path)) == ()


def test_files_of_shapes_are_checked_each(tmp_path):
    path = with_files(tmp_path)
    np.save(tmp_path / "data/x-777.npy", np.zeros(3, np.float32))
    (problem,) = said(path)
    assert "x-777.npy holds an array of shape [3], but 'x' has shape [777]" in problem
    (tmp_path / "data/x-777.npy").unlink()
    (problem,) = said(path)
    assert "no such file" in problem
    path.write_text(FILES.replace("x-{n}", "x-{m}"))
    assert any("file: 'm' in" in problem for problem in said(path))
    path.write_text(FILES.replace("x-{n}.npy'", "x-{n}.npy', sample: b"))
    assert any("sample follows from the files" in problem for problem in said(path))


def test_an_entry_is_not_needed_where_every_launch_names_its_own(tmp_path):
    own = "launch: {entry: scale, grid:"
    text = specs.SPEC.replace("  entry: scale\n", "").replace("launch: {grid:", own)
    template = specs.TEMPLATE.replace("entry: scale\n", "").replace("launch: {grid:", own)
    assert "entry" not in template.replace(own, "")
    experiment = load_experiment(specs.write(tmp_path, text, template__yaml=template))
    assert (experiment.kernel.entry, experiment.template.entry) == ("scale", "scale")
    spec = specs.write(tmp_path, text.replace(own, "launch: {grid:"), template__yaml=template)
    with pytest.raises(SpecProblems, match="missing key 'entry': a launch names none of its own"):
        load_experiment(spec)


def test_compile_commands_bring_folders_options_and_macros(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "a.h").write_text("#define A 1\n")
    command = "nvcc -Iinclude -DREAL=float -DFAST --use_fast_math -O3 -c scale.cu -o scale.o"
    entry = {"directory": str(tmp_path), "file": "scale.cu", "command": command}
    (tmp_path / "commands.json").write_text(json.dumps([entry]))
    more = "  compile_commands: commands.json\n  compiler: nvcc\n  defines: {FAST: '2'}\n"
    text = specs.CUDA_SPEC.replace("  source:", more + "  source:")
    kernel = '#include "a.h"\n' + specs.CUDA_KERNEL
    experiment = load_experiment(specs.write(tmp_path, text, scale__cu=kernel))
    assert experiment.kernel.headers == (("a.h", "#define A 1\n"),)
    assert experiment.kernel.defines == {"REAL": "float", "FAST": "2"}
    assert experiment.kernel.options == ("--use_fast_math", "--std=c++17")
    assert load_resolved(dump_resolved(experiment)) == experiment
    spec = specs.write(tmp_path, text.replace("commands.json", "gone.json"))
    with pytest.raises(SpecProblems, match=r"spec\.yaml:5.*gone\.json"):
        load_experiment(spec)
