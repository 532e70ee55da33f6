"""An application with tuned kernels compiles, and launches the right kernel."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.tuner.export.application_runs import (
    KERNEL,
    SHAPES,
    TEMPLATE,
    after,
    applied,
    experiment,
    host_program,
    needs_gxx,
    parse,
    run_of,
)
from tests.tuner.space.devices import cuda_device
from tuner.experiment.contents import StructField
from tuner.experiment.model import Argument, Launch, Memset, ScratchArgument
from tuner.expressions.real import RealExpression
from tuner.plan import Build
from workers.backends.cuda.compiler import open_compiler

CALLS = """
alignas(16) static float out[1 << 17], x[1 << 17];
#define TRY(what, ...) scale_all(__VA_ARGS__, 0); end(what);
TRY("general", out, x, 16, 1024)
TRY("special", out, x, 4, 2048)
TRY("general again", out, x, 16, 4096)
TRY("fewer rows", out, x, 3, 2048)
TRY("unconfirmed length", out, x, 16, 512)
TRY("outside the domain", out, x, 16, 1023)
TRY("misaligned", out + 1, x, 16, 1024)
TRY("overlapping", x + 1024 * 16 - 8, x, 16, 1024)
TRY("in place", x, x, 16, 1024)
capability = 80;
TRY("another device", out, x, 16, 1024)
capability = 90;
failing = 1;
TRY("failing", out, x, 16, 1024)
failing = 0;
scale_tuned(16, 64, 0, 0, out, x, 16, 1024, 2.0f);
end("another block");
scale_tuned(16, 128, 8, 0, out, x, 16, 1024, 2.0f);
end("another size of shared memory");
scale_tuned(15, 128, 0, 0, out, x, 16, 1024, 2.0f);
end("another grid");
scale_tuned(dim3(16, 2), 128, 0, 0, out, x, 16, 1024, 2.0f);
end("another grid in y");
scale_tuned(16, 128, 0, 0, out, x, 16, 1024, 2.5f);
end("another factor");
"""


def device_program(files: dict[str, str], name: str, entries: tuple[str, ...]):
    build = Build(
        language="cuda",
        file="device.cu",
        source=f'#define BLOCK 128\n#include "{name}"\n',
        entries=entries,
        headers=tuple(files.items()),
    )
    return open_compiler(cuda_device(90)).compile(build)


def test_the_device_side_compiles_for_each_confirmed_length():
    files = after(applied())
    entries = [f"kernelwright_app_scale::{one}::fast::scale" for one in ("general_0", "general_1")]
    made = device_program(
        files, "app_scale_tuned.cuh", (*entries, "kernelwright_app_scale::trial1_0::fast::scale")
    )
    assert {len(made.usage), len(made.symbols)} == {3}, made


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_nvcc_compiles_the_application(tmp_path):
    for name, text in after(applied()).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["nvcc", "-arch=sm_90", "-c", "app.cu", "-o", "app.o"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_gxx
def test_tuned_kernels_serve_what_was_measured_and_the_original_all_else(tmp_path):
    printed = host_program(after(applied()), tmp_path, CALLS)
    assert printed == [
        "tuned 16x64; (general)",
        "tuned 4x256; (special)",
        "tuned 16x64; (general again)",
        "tuned 3x256; (fewer rows)",
        "original; (unconfirmed length)",
        "original; (outside the domain)",
        "original; (misaligned)",
        "original; (overlapping)",
        "original; (in place)",
        "original; (another device)",
        "tuned 16x64; original; (failing)",
        "original; (another block)",
        "original; (another size of shared memory)",
        "original; (another grid)",
        "original; (another grid in y)",
        "original; (another factor)",
    ]


@needs_gxx
def test_a_float_that_follows_from_the_shape_must_be_near_it(tmp_path):
    one = experiment()
    follows = RealExpression.parse("2048.0 / n")
    arguments = tuple(
        replace(argument, value=follows) if argument.name == "by" else argument
        for argument in one.arguments
    )
    calls = """
alignas(16) static float out[1 << 17], x[1 << 17];
#define TRY(what, ...) scale_tuned(16, 128, 0, 0, out, x, 16, __VA_ARGS__); end(what);
TRY("right", 1024, 2.0f)
TRY("nearly right", 1024, 2.0000002f)
TRY("right for another", 1024, 0.5f)
TRY("right there", 4096, 0.5f)
"""
    application = applied(history=run_of(replace(one, arguments=arguments)))
    assert host_program(after(application), tmp_path, calls) == [
        "tuned 16x64; (right)",
        "tuned 16x64; (nearly right)",
        "original; (right for another)",
        "tuned 16x64; (right there)",
    ]


@needs_gxx
def test_a_macro_switches_everything_off(tmp_path):
    calls = 'static float m[9];\nscale_all(m, m, 16, 1024, 0);\nend("off");'
    assert host_program(after(applied()), tmp_path, calls, "-DKERNELWRIGHT_OFF") == [
        "original; (off)"
    ]


@needs_gxx
def test_sizes_follow_from_products_and_sums(tmp_path):
    one = experiment()
    wanted = {"rows": "rows * n", "n": "2 * n + 1"}
    arguments = tuple(
        replace(a, value=parse(wanted[a.name])) if a.name in wanted else a for a in one.arguments
    )
    grid = Launch(grid=(parse(7),), block=(parse(128),))
    history = run_of(replace(one, arguments=arguments, kernel=replace(one.kernel, launch=grid)))
    calls = """
    static float out[1 << 15], x[1 << 15];
    scale_tuned(7, 128, 0, 0, out, x, 16 * 1024, 2049, 2.0f); end("exact");
    scale_tuned(7, 128, 0, 0, out, x, 16 * 1024 + 1, 2049, 2.0f); end("no whole rows");
    scale_tuned(7, 128, 0, 0, out, x, 16 * 1024, 2050, 2.0f); end("even");
    """
    printed = host_program(after(applied(history=history)), tmp_path, calls)
    assert printed == ["tuned 16x64; (exact)", "original; (no whole rows)", "original; (even)"]


@needs_gxx
def test_a_kernel_in_a_namespace_and_behind_an_include_guard(tmp_path):
    kernel = KERNEL.replace("scale(", "scale_rows(")
    text = (
        "#ifndef APP\n#define APP\n#include <cuda_runtime.h>\n#if 0\n#include <none.h>\n#endif\n"
        f"namespace app {{ namespace {{\n{kernel}}} }}\n"
        "void scale_all(float* out, const float* x, int rows, int n, cudaStream_t stream) {\n"
        "  if (rows) { app::scale_rows<<<rows, 128, 0, stream>>>(out, x, rows, n, 2); } else\n"
        "  app::scale_rows<<<1, 128>>>(out, x, 1, n, 2.0f);\n}\n#endif\n"
    )
    one = experiment(source=f"namespace app {{\n{kernel}}}\n", kernel_entry="app::scale_rows")
    application = applied(text, run_of(one))
    made = after(application)["app.cu"]
    assert made.index("cuda_runtime.h") < made.index("_tuned.cuh") < made.index("#if 0")
    calls = 'static float out[1 << 14], x[1 << 14];\nscale_all(out, x, 16, 1024, 0);\nend("it");'
    assert host_program(after(application), tmp_path, calls) == ["tuned 16x64; (it)"]


@needs_gxx
def test_template_arguments_of_a_launch_give_the_symbols_of_the_entry(tmp_path):
    kernel = "template <typename T, int PER>\n" + KERNEL[KERNEL.index("__global__") :]
    kernel = kernel.replace("float*", "T*").replace("scaled(", "(").replace("i], by)", "i] * by)")
    host = (
        "#include <cuda_runtime.h>\n" + kernel + "\ntypedef float real;\n"
        "void all(float* out, const float* x, double* d) {\n"
        "  scale<float, 4><<<16, 128>>>(out, x, 16, 1024, 2);\n"
        "  scale<double, 4><<<16, 128>>>(d, d, 16, 1024, 2);\n"
        "  scale<float, 3><<<16, 128>>>(out, x, 16, 1024, 2);\n"
        "  scale<real, 4><<<16, 128>>>(out, x, 16, 1024, 2);\n}\n"
    )
    shapes = [{**shape, "T": "float32", "PER": 4} for shape in SHAPES]
    one = experiment(source=kernel, kernel_entry="scale<{T}, {PER}>", shapes=shapes)
    application = applied(host, run_of(one))
    assert [note.partition(". To")[0] for note in application.notes[:3]] == [
        f"app.cu:{line}: this launch of scale stays: it has {given}, and the run measured "
        "scale<{T}, {PER}>"
        for line, given in ((11, "<double, 4>"), (12, "<float, 3>"), (13, "<real, 4>"))
    ]
    calls = (
        "alignas(16) static float o[1 << 14], x[1 << 14];\nstatic double d[1 << 15];\n"
        'all(o, x, d);\nend("all");'
    )
    printed = host_program(after(application), tmp_path, calls)
    assert printed == ["tuned 16x64; original; original; original; (all)"]


@needs_gxx
def test_scratch_is_allocated_and_filled_on_the_stream(tmp_path):
    template = """
    __global__ void first(float* out, const float* x, int rows, int n, float by, float* part) {}
    __global__ void second(float* part, float* out) {}
    """
    one = experiment(
        template=template,
        entry="first",
        defines={},
        scratch=(ScratchArgument(name="part", dtype="float32", shape=(parse("rows"), parse("2"))),),
    )
    steps = (
        Memset(memset="part", byte=255),
        Memset(memset="out"),
        Launch(grid=(parse("rows"),), block=(parse("BLOCK"),)),
        Launch(grid=(parse(1),), block=(parse(32),), entry="second", arguments=("part", "out")),
    )
    one = replace(one, template=replace(one.template, launch=None, launches=steps))
    application = applied(history=run_of(one))
    assert "general allocates work memory from the stream's pool at each launch" in (
        application.notes
    )
    calls = """
    alignas(16) static float out[1 << 14], x[1 << 14];
    scale_all(out, x, 16, 1024, 0); end("served");
    failing = 1;
    scale_all(out, x, 16, 1024, 0); end("no memory");
    """
    assert host_program(after(application), tmp_path, calls) == [
        "malloc 128; memset 255 128; memset 0 65536; tuned 16x64; tuned 1x32; free; (served)",
        "malloc 128; original; (no memory)",
    ]


@needs_gxx
def test_without_a_domain_confirmed_shapes_alone_are_served(tmp_path):
    one = experiment(domain=(), defines={}, template=TEMPLATE.replace("N", "n"))
    application = applied(history=run_of(one))
    said = "the spec has no domain: tuned kernels serve the confirmed shapes alone"
    assert said in application.notes
    calls = """
    alignas(16) static float out[1 << 16], x[1 << 16];
    scale_all(out, x, 16, 1024, 0); end("confirmed");
    scale_all(out, x, 16, 2048, 0); end("between");
    """
    assert host_program(after(application), tmp_path, calls) == [
        "tuned 16x64; (confirmed)",
        "original; (between)",
    ]


@needs_gxx
def test_structs_by_value_are_checked_field_by_field_or_byte_by_byte(tmp_path):
    kernel = KERNEL.replace("int rows, int n, float by", "Sizes sizes, Raw raw").replace(
        "  for", "  int n = sizes.n;\n  float by = sizes.by;\n  for"
    )
    types = "struct Sizes { char kind; int n; float by; };\nstruct Raw { int first, second; };\n"
    one = experiment(source=types + kernel)
    fields = (
        StructField(name="kind", dtype="int8", value=(parse(3),)),
        StructField(name="n", dtype="int32", value=(parse("n"),)),
        StructField(name="by", dtype="float32", value=(2.0,)),
    )
    arguments = (
        *one.arguments[:2],
        Argument(name="sizes", kind="struct", fields=fields),
        Argument(name="raw", kind="struct", bytes="0100000007000000"),
    )
    host = "#include <cuda_runtime.h>\n" + types + kernel
    application = applied(host, run_of(replace(one, arguments=arguments)))
    calls = """
    alignas(16) static float out[1 << 14], x[1 << 14];
    scale_tuned(16, 128, 0, 0, out, x, {3, 1024, 2}, {1, 7}); end("same");
    scale_tuned(16, 128, 0, 0, out, x, {3, 1023, 2}, {1, 7}); end("odd size");
    scale_tuned(16, 128, 0, 0, out, x, {4, 1024, 2}, {1, 7}); end("another kind");
    scale_tuned(16, 128, 0, 0, out, x, {3, 1024, 2}, {1, 8}); end("other bytes");
    """
    assert host_program(after(application), tmp_path, calls) == [
        "tuned 16x64; (same)",
        "original; (odd size)",
        "original; (another kind)",
        "original; (other bytes)",
    ]
