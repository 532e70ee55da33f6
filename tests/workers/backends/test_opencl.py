"""The OpenCL adapters, on whatever OpenCL device there is (PoCL on a CPU in CI)."""

import ctypes
import faulthandler
import os
import re
import signal
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from tests.conformance.compiler import CompilerConformance
from tests.conformance.device_backend import POISON, DeviceBackendConformance, N
from tests.workers.harness import build
from tuner.plan import Binary, Build
from tuner.trial import Rejected
from workers.backends.opencl.compiler import OpenCLCompiler
from workers.backends.opencl.device import OpenCLDevice, open_device
from workers.backends.opencl.native_code import has_lasting_memory
from workers.backends.opencl.platforms import opencl_devices
from workers.backends.opencl.regions import DeviceRegion, HostRegion, canary
from workers.devices.port import GUARD_BYTES, DeviceFailure

HEAD = "global float *out, global float *x, global float *y, int n"
BODIES = {
    "affine": "if (i < n) out[i] = fma(2.0f, x[i], y[i]);",
    "nothing": "",
    "behind": "if (i == 0) out[n] = 1.0f;",
    "before": "if (i == 0) out[-1] = 1.0f;",
    "overwrite": "if (i == 5) x[i] = 1.0f;",
    "add": "if (i < n) out[i] += x[i];",
    "counts": "if (i < n) out[i] += ++launches[i];",
    "staged": "if (i < n) { y[i] = x[i]; out[i] = y[i]; }",
}


@cache
def compiled(entry: str) -> Binary:
    source = f"""
        global int launches[{N}];
        kernel void {entry}({HEAD}) {{ int i = get_global_id(0); {BODIES[entry]} }}
    """
    options = ("-cl-std=CL2.0",) if entry == "counts" else ()
    source = source if options else source.replace(f"global int launches[{N}];", "")
    binary = OpenCLCompiler(opencl_devices()[0]).compile(build(source, entry, options=options))
    assert isinstance(binary, Binary), binary
    return binary


class TestOpenCLDevice(DeviceBackendConformance):
    @pytest.fixture
    def backend(self) -> Iterator[OpenCLDevice]:
        device = open_device(0)
        yield device
        device.close()

    def compiled(self, entry: str) -> Binary:
        return compiled(entry)

    @pytest.mark.parametrize("align", [4, 8, 16, 32, 128, 4096])
    def test_buffers_are_aligned_to_exactly_what_is_promised(
        self, backend, arrays, tmp_path, align
    ) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays, align=align)
        for regions in buffer_sets.regions:
            for region in regions.values():
                address = region.read().ctypes.data
                assert address % align == 0
                assert address % (2 * align) == align

    def test_a_loaded_module_starts_without_a_past(self, backend, arrays, tmp_path) -> None:
        if backend.device.is_cpu:
            # The bench replaces the child before it loads a binary again: test_device_bench.py.
            pytest.skip("PoCL keeps a binary's variables for as long as its process lives")
        super().test_a_loaded_module_starts_without_a_past(backend, arrays, tmp_path)

    def test_garbage_is_no_binary(self, backend) -> None:
        good = compiled("affine")
        broken = Binary(
            build=good.build,
            code=b"garbage",
            usage=good.usage,
            symbols=good.symbols,
            compile_seconds=0.0,
        )
        with pytest.raises(DeviceFailure):
            backend.load([broken])

    def test_too_few_arguments_are_refused(self, backend, arrays, tmp_path) -> None:
        buffer_sets = self.stage(backend, tmp_path, arrays)
        with pytest.raises(DeviceFailure, match="takes 4 arguments, given 3"):
            self.bind(backend, buffer_sets, "affine", arguments=("out", "x", "n"))

    def test_local_memory_is_the_last_argument(self, backend, arrays, tmp_path) -> None:
        source = """
            kernel void turned(global float *out, global float *x, global float *y, int n,
                               local float *parts)
            {
                int i = get_local_id(0);
                parts[i] = x[i];
                barrier(CLK_LOCAL_MEM_FENCE);
                out[i] = parts[99 - i];
            }
        """
        binary = OpenCLCompiler(opencl_devices()[0]).compile(build(source, "turned"))
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1)
        launchable = self.bind_module(
            backend, backend.load([binary]), buffer_sets, "turned",
            grid=(1, 1, 1), block=(100, 1, 1), shared_bytes=400,
        )  # fmt: skip
        buffer_sets.restore([0], POISON)
        launchable.burst([0])
        got = np.frombuffer(buffer_sets.inspect(0, {}).outputs["out"], np.float32)
        assert np.array_equal(got[:100], arrays["x"][99::-1])

    def test_local_memory_holds_noise_before_each_launch(self, backend, arrays, tmp_path) -> None:
        source = """
            kernel void peeks(global float *out, global float *x, global float *y, int n)
            {
                local uint parts[2048];
                if (n < 0)
                    parts[get_local_id(0)] = 1;
                barrier(CLK_LOCAL_MEM_FENCE);
                ((global uint *)out)[get_local_id(0)] = parts[1900 + get_local_id(0)];
            }
        """
        binary = OpenCLCompiler(opencl_devices()[0]).compile(build(source, "peeks"))
        buffer_sets = self.stage(backend, tmp_path, arrays, sets=1)
        one = {"grid": (1, 1, 1), "block": (64, 1, 1)}
        launchable = self.bind_module(backend, backend.load([binary]), buffer_sets, "peeks", **one)
        for _ in range(3):
            buffer_sets.restore([0], POISON)
            launchable.burst([0])
            got = np.frombuffer(buffer_sets.inspect(0, {}).outputs["out"], np.uint32)[:64]
            assert (got == got[0]).all()
            assert got[0] > 1


class TestOpenCLCompiler(CompilerConformance):
    @pytest.fixture
    def compiler(self) -> OpenCLCompiler:
        return OpenCLCompiler(opencl_devices()[0])

    def build(self, body: str, before: str = "", **fields: object) -> Build:
        source = f"{before}\nkernel void probe(global float *out) {{\n{body}\n}}"
        given = {"entries": ("probe",)} | fields
        return Build(language="opencl", file="probe.src", source=source, **given)

    def test_usage_tells_local_memory(self, compiler) -> None:
        body = "local float parts[256]; parts[get_local_id(0)] = 1; out[0] = parts[1];"
        binary = compiler.compile(self.build(body))
        assert dict(binary.usage)["probe"].static_shared_bytes == 1024


@pytest.mark.parametrize("kind", ["host", "input", "sealed", "device"])
def test_regions_of_either_memory_keep_their_bytes(kind: str) -> None:
    device = open_device(0)
    guard = canary(GUARD_BYTES, 5)
    if kind != "device":
        more = {"is_input": kind == "input", "read_only": kind == "sealed"}
        region = HostRegion(device.opencl, 1000, 4, guard, **more)
    else:
        region = DeviceRegion(device.opencl, 1000, guard)
    region.mend()
    contents = np.arange(1000, dtype=np.uint8)
    region.write(contents)
    assert np.array_equal(region.read(), contents)
    region.fill(7)
    assert (region.read() == 7).all()
    assert region.broken() is None


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("align", [1, 4, 128])
@pytest.mark.parametrize("size", [1, 1000, 4096, 70_001])
def test_what_reads_past_an_input_crashes(size: int, align: int, read_only: bool) -> None:
    device, guard = open_device(0), canary(GUARD_BYTES, 5)
    more = {"is_input": True, "read_only": read_only}
    region = HostRegion(device.opencl, size, align, guard, **more)
    region.mend()
    place = region.read().ctypes.data
    assert place % (2 * align) == align
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        ctypes.string_at(place - GUARD_BYTES, GUARD_BYTES + size)
        ctypes.string_at(place + size + 2 * align - 1, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.parametrize(
    ("hidden", "found"),
    [
        ("#ifdef NEVER\nvoid never() {\n#endif\nint a;\n#ifdef NEVER\n}\n#endif", True),
        pytest.param("#define V(...) __VA_OPT__({)\nV() int a;", True, marks=pytest.mark.slow),
        ("constant int b[] = {1, 2}, *constant c[] = {b, b + 1};\n#define a (*c[n & 1])", False),
    ],
)
def test_variables_that_outlast_a_launch_are_seen_in_the_machine_code(hidden, found) -> None:
    change = "a += n;" if found else ""
    source = f"{hidden}\nkernel void k(global int *x, int n) {{ {change} x[n] = a; }}"
    code = OpenCLCompiler(opencl_devices()[0]).compile(
        build(source, "k", options=("-cl-std=CL2.0",))
    )
    assert isinstance(code, Binary), code
    assert code.reaches == (("variables that outlast a launch",) if found else ())


JOINED = "#define J(a, b, c) a##b##c\n#define JOINED(a, b, c) J(a, b, c)\n"
"""The compiler expands what stands between, if it is a macro, before it joins the words."""


@pytest.mark.parametrize(
    "code",
    [
        'JOINED(__as, __REGISTER_PREFIX__, m__) volatile("nop");',
        'JOINED(a, __INT8_C_SUFFIX__, sm)("nop"); // asm',
        "x[0] = *(int JOINED(__seg, __REGISTER_PREFIX__, _fs) *)16;",
        "x[0] = *(int __attribute__((JOINED(address_, __REGISTER_PREFIX__, space)(257))) *)16;",
        'JOINED(_Pra, __REGISTER_PREFIX__, gma)("unroll") while (n < 3) n++;',
    ],
)
def test_no_macro_makes_a_word_that_the_source_rules_look_for(code: str) -> None:
    source = f"{JOINED}kernel void k(global int *x, int n) {{\n{code}\n}}"
    found = OpenCLCompiler(opencl_devices()[0]).compile(build(source, "k"))
    assert isinstance(found, Rejected)
    assert re.search(r":4:\d+: error: a macro may not make this word", found.detail)
    assert "warning" not in found.detail


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("readcyclecounter()", ("llvm.readcyclecounter",)),
        ("ia32_ldmxcsr(40896), 0", ("llvm.x86.sse.ldmxcsr",)),
        ("fmaf(x[0], x[1], x[2])", ()),
    ],
)
def test_intrinsics_are_seen_however_the_source_hides_them(call: str, found: object) -> None:
    name, _, rest = call.partition("(")
    joined = f"JOINED(__built, __REGISTER_PREFIX__, in_{name})({rest}"
    source = f"{JOINED}kernel void k(global int *x) {{ x[3] = ({joined}); }}"
    binary = OpenCLCompiler(opencl_devices()[0]).compile(build(source, "k"))
    assert isinstance(binary, Binary), binary
    assert binary.reaches == found


def test_a_program_without_kernels_may_be_one_that_the_compiler_gave_up() -> None:
    refused = OpenCLCompiler(opencl_devices()[0]).compile(build("int one() { return 1; }", "k"))
    assert isinstance(refused, Rejected)
    assert "has no kernel named 'k'; found: none" in refused.detail
    assert "it gave up, as PoCL does" in refused.detail


def test_a_constant_that_looks_like_a_library_is_none() -> None:
    assert not has_lasting_memory(
        b"\x7fELF\x02\x01" + bytes(9) + b"\x7fELF\x02\x01" + b"\xff" * 200
    )
