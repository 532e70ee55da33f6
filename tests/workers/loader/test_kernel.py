"""Exported kernels called from Python on a real OpenCL device: choice, checks, results."""

import json
from dataclasses import replace

import numpy as np
import pytest

from kernelwright import load_kernel
from tests.workers.loader.exports import KERNEL, SPEC, TUNED, device, exported
from tuner.errors import EnvironmentProblem, SpecError
from tuner.export.manifest import read_manifest
from workers.loader.kernel import TunedKernel

cl = pytest.importorskip("pyopencl")
arrays = pytest.importorskip("pyopencl.array")


@pytest.fixture(scope="module")
def queue():
    from workers.backends.opencl.platforms import opencl_devices

    return cl.CommandQueue(cl.Context([opencl_devices()[0]]))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    for name, text in exported().items():
        (folder / name).write_text(text)
    return load_kernel(folder)


def made(queue, rows, cols):
    """An output of ones and an input."""
    x = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)
    return arrays.to_device(queue, np.ones_like(x)), arrays.to_device(queue, x)


@pytest.mark.parametrize(
    ("rows", "cols", "variant"),
    [
        (4, 64, "general"),
        (64, 512, "trial1"),
        (3, 40, "general"),
        (3, 41, "baseline"),  # outside the domain
        (1, 8192, "baseline"),
    ],
)
def test_the_variant_of_the_rule_computes_the_result(kernel, queue, rows, cols, variant):
    out, x = made(queue, rows, cols)
    assert kernel.variant(out, x, factor=3.0) == variant
    kernel(out, x, cols, 7, 3.0)
    np.testing.assert_array_equal(out.get(), 3 * x.get())


def test_another_call_of_the_same_shape_takes_its_own_scalars_and_arrays(kernel, queue):
    for factor in (2.0, 5.0):
        out, x = made(queue, 4, 64)
        kernel(out, x, factor=np.float32(factor))
        np.testing.assert_array_equal(out.get(), factor * x.get())
    for factor in (0.0, -0.0):  # equal, but not the same
        out, x = made(queue, 3, 41)
        kernel(out, x, factor=factor)
        np.testing.assert_array_equal(np.signbit(out.get()), np.signbit(factor * x.get()))


def test_flat_arrays_and_bare_buffers_are_taken_where_the_sizes_are_told(kernel, queue):
    out, x = made(queue, 4, 64)
    kernel(out.ravel(), x.ravel(), 64, factor=2.0)
    np.testing.assert_array_equal(out.get(), 2 * x.get())
    kernel(out.data, x.data, 64, factor=4.0, rows=4, stream=queue)
    np.testing.assert_array_equal(out.get(), 4 * x.get())
    with pytest.raises(SpecError, match=r"the size 'rows' does not follow .*: pass rows=…"):
        kernel(out.data, x.data, 64, factor=4.0, stream=queue)
    with pytest.raises(SpecError, match="'out': the buffer has 1024 bytes; 1280 are needed"):
        kernel(out.data, x.data, 64, factor=4.0, rows=5, stream=queue)


def test_what_tuned_kernels_were_not_tested_with_is_left_to_the_baseline(kernel, queue):
    out, x = made(queue, 4, 64)
    assert kernel.variant(out, x, mode=7, factor=1.0) == "general"
    assert kernel.variant(out, x, mode=8, factor=1.0) == "baseline"
    assert kernel.variant(x, x, factor=1.0) == "baseline"  # an output overlaps an input
    size = 4 * 4 * 64
    host = cl.Buffer(
        queue.context, cl.mem_flags.USE_HOST_PTR, hostbuf=np.zeros(size // 4, np.float32)
    )
    unaligned = arrays.Array(queue, (4, 64), np.float32, data=host)
    assert kernel.variant(unaligned, x, factor=1.0) == "baseline"


def test_parts_of_a_buffer_overlap_and_are_aligned_as_they_lie_in_it(kernel, queue):
    size, align = 4 * 4 * 64, queue.device.mem_base_addr_align // 8
    whole = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * size + align)
    first, second = (whole.get_sub_region(start, 2 * size) for start in (0, size))
    last = whole.get_sub_region(2 * size, 2 * size + align)

    def array(buffer, offset=0):
        return arrays.Array(queue, (4, 64), np.float32, data=buffer, offset=offset)

    assert kernel.variant(array(first), array(last), factor=1.0) == "general"
    assert kernel.variant(array(first), array(first, size), factor=1.0) == "general"
    assert kernel.variant(array(second), array(first, size), factor=1.0) == "baseline"
    assert kernel.variant(array(second), array(whole, size), factor=1.0) == "baseline"
    bare = {"cols": 64, "rows": 4, "factor": 1.0, "stream": queue}
    assert kernel.variant(first, second, **bare) == "baseline"
    assert kernel.variant(first, last, **bare) == "general"

    out, x = array(last, align), made(queue, 4, 64)[1]
    kernel(out, x, factor=3.0)
    np.testing.assert_array_equal(out.get(), 3 * x.get())


def test_each_call_checks_its_numbers(queue):
    spec = SPEC.replace("value: 7, fixed: true", "value: 1, range: [0, 9]")
    kernel, (out, x) = TunedKernel(exported(spec)), made(queue, 4, 64)
    beyond = [float("nan"), float("inf"), -float("inf"), np.float32("nan"), 10**400, 10**5000]
    cases = [
        ("mode", [2.5, 2**40, *beyond], r"argument 'mode': .{1,30} is no int32"),
        ("factor", [1e300, -(2**128), 10**400, 10**5000], "'factor': .{1,50} is no float32"),
        ("cols", [2**70, *beyond], "argument 'cols': .{1,30} is no size"),
        ("rows", [2.5, *beyond], "argument 'rows': .{1,30} is no size"),
    ]
    for _ in range(2):
        for name, values, message in cases:
            for value in values:
                for call in (kernel, kernel.variant):
                    with pytest.raises(SpecError, match=message):
                        call(out, x, **{"factor": 2.0, "mode": 1, name: value})
        kernel(out, x, mode=1, factor=2.0)
    assert kernel.variant(out, x, mode=9, factor=2.0) == "general"
    assert kernel.variant(out, x, mode=10, factor=2.0) == "baseline"
    largest = 3.40282347e38  # as in C: slightly more than float32 holds, but rounded to it
    for factor in (largest, float("inf"), 2**70):
        kernel(out, x, mode=1, factor=factor)
        np.testing.assert_array_equal(out.get()[0, 1], np.float32(factor))


def test_a_float_that_follows_from_the_shape_is_computed_or_compared(queue, tmp_path):
    for name, text in exported(SPEC.replace("value: 2.0", "value: 128.0 / cols")).items():
        (tmp_path / name).write_text(text)
    kernel, (out, x) = load_kernel(tmp_path), made(queue, 4, 64)
    kernel(out, x)
    np.testing.assert_array_equal(out.get(), 2 * x.get())
    assert kernel.variant(out, x, factor=2.0000002) == "general"
    with pytest.raises(SpecError, match=r"2.1 is given, but .* make 128.0 / cols = 2.0"):
        kernel(out, x, factor=2.1)


def test_an_export_need_not_say_what_its_arrays_hold_nor_suit_a_derived_template(queue, tmp_path):
    ids = "  - {name: ids, kind: in, dtype: int32, shape: [rows], values: permutation}\n"
    spec = SPEC.replace("  - {name: cols,", f"{ids}  - {{name: cols,")
    kernel, tuned = (
        text.replace("global const float *x,", "global const int *x, global const int *ids,")
        .replace("x[row * cols + col]", "as_float(x[ids[row] * cols + col])")
        .replace("x[i]", "as_float(x[ids[row] * cols + col])")
        for text in (KERNEL, TUNED)
    )
    for name, text in exported(spec, kernel, tuned).items():
        (tmp_path / name).write_text(text)
    loaded, (out, x) = load_kernel(tmp_path), made(queue, 4, 64)
    order = np.array([2, 0, 3, 1], np.int32)
    loaded(out, x, arrays.to_device(queue, order), factor=2.0)
    np.testing.assert_array_equal(out.get(), 2 * x.get()[order])


def test_another_device_model_runs_the_baseline():
    manifest, shape = read_manifest(exported()["export.json"]), {"rows": 4, "cols": 64}
    assert manifest.serve(shape, device()).variant.name == "general"
    assert manifest.serve(shape, replace(device(), name="another")).variant.name == "baseline"


def test_where_every_output_is_empty_nothing_is_launched(kernel, queue):
    out, x = (arrays.empty(queue, (0, 64), np.float32) for _ in range(2))
    assert kernel.variant(out, x, factor=1.0) == ""
    kernel(out, x, factor=1.0)


def test_an_error_names_the_argument_and_the_remedy(kernel, queue):
    out, x = made(queue, 4, 64)
    wide = arrays.to_device(queue, np.zeros((4, 128), np.float32))
    cases = [
        (lambda: kernel(out), "argument 'x' is missing; the kernel takes \\(out, x, cols, mode"),
        (lambda: kernel(out, x), "argument 'factor' is missing"),
        (lambda: kernel(out, x, 64, 7, 1.0, 2), "6 arguments are given; the"),
        (lambda: kernel(out, x, out=x), "argument 'out' is given twice"),
        (lambda: kernel(out, x, fctor=1.0), "no argument 'fctor' \\(did you mean 'factor'"),
        (lambda: kernel(out, x, factor="1"), "argument 'factor': a number is needed, not a str"),
        (lambda: kernel(out, np.ones(3), factor=1.0), "'x': a ndarray is no array on a device"),
        (lambda: kernel(out, x, 65, factor=1.0), "'cols': 65 is given, but .* make cols = 64"),
        (lambda: kernel(out, x, 6.5, factor=1.0), "'cols': 6.5 is no size"),
        (lambda: kernel(out, x.astype(np.float64), factor=1.0), "float64, .* float32: convert"),
        (lambda: kernel(out, wide[:, ::2], factor=1.0), "'x': its strides .*contiguous copy"),
        (
            lambda: kernel(out, wide, factor=1.0),
            "'out' and 'x' disagree about 'cols': .* gives 128",
        ),
        (lambda: kernel(out.data, x.data, 64, factor=1.0), "stream: pass a pyopencl.CommandQueue"),
        (lambda: kernel(out, x, factor=1.0, rows="4"), "argument 'rows': a number is needed"),
        (lambda: kernel.torch_op("a::b"), "a PyTorch operator needs a CUDA kernel"),
    ]
    for call, message in cases:
        with pytest.raises(SpecError, match=message):
            call()


def test_a_loaded_export_says_how_it_is_called(kernel):
    assert repr(kernel).startswith("<kernel scale_rows(out, x, cols, mode, factor) for ")


def test_what_is_nested_too_deeply_is_refused():
    with pytest.raises(EnvironmentProblem, match=r"export\.json is not JSON"):
        TunedKernel(exported() | {"export.json": "[" * 100_000})


def test_a_file_that_is_gone_is_named(tmp_path):
    (tmp_path / "export.json").write_text(exported()["export.json"])
    with pytest.raises(EnvironmentProblem, match=r"there is no .*_baseline\.cl: name a folder"):
        load_kernel(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format=0), "has format 0, but this version reads 1: export the run"),
        (lambda m: m.update(more=1), "is invalid: more"),
        (lambda m: m.update(otherwise="none"), "there is no variant 'none'"),
        (lambda m: m["variants"].pop(0), "there is no variant 'baseline'"),
        (lambda m: m["variants"][1].update(file="../x"), "the file ../x is missing"),
        (lambda m: m["kernel"].update(options=["-I/etc"]), "baseline: kernel.options"),
        (lambda m: m["domain"].append("nothing > 1"), "baseline: shapes.domain"),
        (lambda m: m["arguments"][0].update(shape=["rows +"]), "is invalid: arguments.0.shape"),
    ],
)
def test_a_damaged_export_is_refused_by_name(change, message):
    files = dict(exported())
    manifest = json.loads(files["export.json"])
    change(manifest)
    with pytest.raises(EnvironmentProblem, match=message):
        TunedKernel(files | {"export.json": json.dumps(manifest)})


def test_text_that_is_no_json_is_refused():
    with pytest.raises(EnvironmentProblem, match=r"export\.json is not JSON"):
        TunedKernel(exported() | {"export.json": "{"})
