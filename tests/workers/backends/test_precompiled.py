import pytest

from tuner.plan import Build
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.precompiled import PrecompiledHeaders

nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

KERNEL = """extern "C" __global__ void scale(__half* x) {
  x[threadIdx.x] = __float2half(__half2float(x[threadIdx.x]) * ITEMS);
}
"""
SOURCE = f"// Scaled.\n#include <cuda_fp16.h>\n\n{KERNEL}"
OPTIONS = ("-arch=sm_90", "--std=c++17", "--minimal")


@pytest.fixture(scope="module")
def compiler():
    return open_compiler(device_for("sm_90"))


def over(folder):
    """What is compiled with the headers in a folder."""
    headers = PrecompiledHeaders(nvrtc, (folder,))

    def applied(source=SOURCE, own=(), options=OPTIONS, **macros):
        given = (*options, f"-I{folder}")
        return headers.applied(source, dict.fromkeys(own, ""), macros, given)

    return applied


@pytest.fixture(scope="module")
def applied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("include")
    (folder / "cuda_fp16.h").write_text('#pragma once\n#include "more.h"\nstruct __half {};\n')
    (folder / "more.h").write_text("#define LARGER_ITEMS 4\n// ROWS\n")
    return over(folder)


def test_macros_follow_the_headers_and_lines_keep_their_numbers(applied):
    source, option = applied(ITEMS="8")
    head = "#include <cuda_fp16.h>\n#define ITEMS 8\n#line 3\n\n"
    assert source == head + KERNEL
    assert option.startswith("--use-pch=")
    assert applied(ITEMS="16")[1] == option
    assert applied(options=("-arch=sm_80",), ITEMS="8")[1] != option


@pytest.mark.parametrize(
    "macros",
    [{"ROWS": "1"}, {"LARGER_ITEMS": "1"}, {"items": "1"}, {"_X": "1"}, {"ITEMS": "1 //"}],
)
def test_macros_that_may_change_a_header_come_before_it(applied, macros):
    assert applied(**macros) is None


@pytest.mark.parametrize(
    "source",
    [
        KERNEL,
        f"#include <cooperative_groups.h>\n{SOURCE}",
        f"#define N 1\n{SOURCE}",
        f"// \\\n{SOURCE}",
    ],
)
def test_other_sources_are_compiled_as_they_are(applied, source):
    assert applied(source) is None


def test_a_header_of_the_source_s_own_is_not_the_toolkit_s(applied):
    assert applied(own=("cuda_fp16.h",), ITEMS="8") is None


def test_headers_that_do_not_compile_are_left_to_the_source(tmp_path):
    (tmp_path / "mma.h").write_text("#error not here\n")
    assert over(tmp_path)("#include <mma.h>\n") is None


def test_the_code_is_the_same(compiler):
    def code(source, items):
        build = Build(
            language="cuda",
            file="k.cu",
            source=source,
            entries=("scale",),
            macros=(("ITEMS", items),),
        )
        return compiler.compile(build).code

    for items in (3, 5):
        assert code(SOURCE, items) == code(f"/* Not the first line. */\n{SOURCE}", items)
