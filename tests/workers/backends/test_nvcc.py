"""``compiler: nvcc``: the very file, its instances' names in the binary, and its errors."""

import shutil

import pytest

from tests.workers.backends.test_nvrtc import APPLICATION
from tuner.errors import EnvironmentProblem
from tuner.plan import Binary, Build
from tuner.trial import Rejected
from workers.backends.cuda import installation, nvcc
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
needs_nvcc = pytest.mark.skipif(
    not (shutil.which("nvcc") and shutil.which("c++filt")), reason="no CUDA toolkit"
)

SOURCE = """#include <vector>
#include "detail/tile.h"
namespace app {
enum class Mode { plain, fast };
__constant__ float table[TILE];
template <typename T, Mode MODE>
__global__ void scale(T* x, long long n) { x[threadIdx.x] = table[0] * n + FACTOR; }
}
extern "C" __global__ void plain(float* x) { x[0] = 1; }
int main() { std::vector<float> host(4); plain<<<1, 1>>>(host.data()); }
"""


def build(source=SOURCE, **fields) -> Build:
    given = {
        "entries": ("app::scale<double, app::Mode::fast>", "plain"),
        "headers": (("detail/tile.h", '#include "../base.h"\n'), ("base.h", "#define TILE 4\n")),
        "variables": ("app::table",),
        "macros": (("FACTOR", "2"),),
    }
    return Build(language="cuda", file="k.cu", source=source, compiler="nvcc", **(given | fields))


@pytest.fixture(scope="module")
def compiler():
    return open_compiler(device_for("sm_90"))


@needs_nvcc
def test_the_very_file_is_compiled_and_its_instances_are_named(compiler):
    made = compiler.compile(build())
    assert isinstance(made, Binary), made
    assert made.code[:4] == b"\x7fELF"
    assert dict(made.symbols) == {
        "app::scale<double, app::Mode::fast>": "_ZN3app5scaleIdLNS_4ModeE1EEEvPT_x",
        "plain": "plain",
        "app::table": "_ZN3app5tableE",
    }
    assert made.variable_bytes == (("app::table", 16),)
    assert all(usage.registers > 0 for _, usage in made.usage)


@needs_nvcc
def test_errors_keep_their_line_and_includes_their_rules(compiler):
    wrong = compiler.compile(build(SOURCE.replace("n + FACTOR", "n + missing")))
    assert 'k.cu(7): error: identifier "missing" is undefined' in wrong.detail
    left = compiler.compile(build('#include "/etc/hostname"\n' + SOURCE))
    assert "leaves the toolchain" in left.detail
    absent = compiler.compile(build(entries=("nothing",), variables=()))
    assert isinstance(absent, Rejected)


def test_a_missing_toolkit_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setattr(installation, "PLACES", "")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvironmentProblem, match="install the CUDA toolkit"):
        nvcc.compile_with_nvcc(build(APPLICATION), [])
