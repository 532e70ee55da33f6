"""Machine code taken as it is: what a file tells of its kernels, and what is refused by name."""

import contextlib
import dataclasses
import struct
import time

import pytest

from tests.workers.backends.fatbins import fatbin
from tuner.files import packed
from tuner.plan import Binary, Build, Usage
from tuner.trial import Code, Rejected, Stage
from workers.backends.cuda.architectures import ARCHITECTURES, device_for
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.image import narrowed, read_image

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

SOURCE = """namespace ns {
__constant__ float weights[5];
template <typename T, int N> __global__ void turn(T* x) {
  __shared__ T kept[256 * N];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = kept[255 - threadIdx.x];
}
}
__global__ void __launch_bounds__(96, 2) gather(float* x, int n) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = x[i * n];
  for (int i = 0; i < n; i++) x[i] += a[(i * 7 + n) % 64];
}
extern "C" __global__ void plain(float* x, float s) { x[threadIdx.x] *= s * ns::weights[1]; }
"""
ENTRIES = ("ns::turn<float, 4>", "gather", "plain")
PTX = """//
.version 8.0
.target sm_80
.address_size 64
.visible .entry probe(.param .u64 probe_param_0)
.maxntid 128, 1, 1
{
\tmov.u64 %rd1, %clock64;
\tret;
}
"""


def compiled(arch):
    compiler = open_compiler(device_for(arch))
    build = Build(
        language="cuda",
        file="k.cu",
        source=SOURCE,
        entries=ENTRIES,
        variables=("ns::weights",),
    )
    return compiler, compiler.compile(build)


@pytest.fixture(scope="module")
def on_90():
    return compiled("sm_90")


def taken(compiler, code, *entries, symbols=(), **more):
    return compiler.compile(
        Build(
            language="cuda",
            file="app.cu",
            source="#include <not_there.h>",
            entries=entries,
            image=packed(code),
            symbols=symbols,
            **more,
        )
    )


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_cubin_tells_what_the_assembler_reported(arch):
    compiler, binary = compiled(arch)
    again = taken(compiler, binary.code, *ENTRIES, variables=("ns::weights",))
    assert isinstance(again, Binary), again
    assert again.variable_bytes == binary.variable_bytes == (("ns::weights", 20),)
    assert again.code == binary.code
    assert again.symbols == binary.symbols
    unknown = {"spill_bytes": None, "mix": ()}
    assert dict(again.usage) == {
        entry: dataclasses.replace(usage, **unknown) for entry, usage in binary.usage
    }


def test_an_entry_is_found_by_its_name_there_or_the_given_one(on_90):
    compiler, binary = on_90
    symbol = dict(binary.symbols)["gather"]
    given = taken(compiler, binary.code, "collect", symbols=(("collect", symbol),))
    assert given.symbols == (("collect", symbol),)
    missing = taken(compiler, binary.code, "collect")
    assert isinstance(missing, Rejected)
    assert (missing.stage, missing.code) == (Stage.COMPILE, Code.COMPILE_ERROR)
    assert symbol in missing.detail
    assert "kernel.binary.symbols" in missing.detail
    absent = taken(compiler, binary.code, "plain", variables=("ns::wheights",))
    assert "has no variable ns::wheights; it has: _ZN2ns7weightsE" in absent.detail
    wrong = taken(compiler, binary.code, "gather", symbols=(("gather", "absent"),))
    assert "has no kernel absent" in wrong.detail


def test_code_of_another_architecture_is_refused(on_90):
    older, _ = compiled("sm_80")
    refused = taken(older, on_90[1].code, "plain")
    assert "holds code for sm_90; the device has compute capability 8.0" in refused.detail


def test_ptx_names_its_kernels_bounds_and_what_it_reaches(on_90):
    compiler, _ = on_90
    binary = taken(compiler, PTX.encode() + b"\0", "probe")
    assert binary.usage == (("probe", Usage(max_threads_per_block=128, parameter_bytes=(8,))),)
    assert binary.reaches == ("a clock",)
    assert not binary.persists
    assert not binary.shares
    assert not binary.synchronises
    assert binary.code == PTX.encode() + b"\0"
    newer = taken(compiler, PTX.replace("sm_80", "sm_100").encode(), "probe")
    assert "holds code for PTX for sm_100" in newer.detail


def test_a_fatbin_names_its_architectures_but_not_its_kernels(on_90):
    compiler, binary = on_90
    held = fatbin((2, 80, b"x" * 24), (2, 90, binary.code), (1, 120, b"compressed"))
    image = read_image(held)
    assert (image.cubins, image.ptx, image.kernels) == ((80, 90), (120,), None)
    got = taken(compiler, held, "plain", symbols=(("plain", "_Z5plainPf"),))
    assert got.symbols == (("plain", "_Z5plainPf"),)
    assert got.usage == (("plain", Usage()),)
    assert got.persists
    assert got.shares
    assert got.synchronises
    refused = taken(compiler, fatbin((2, 80, b"x")), "plain")
    assert "holds code for sm_80; the device" in refused.detail


@pytest.mark.parametrize(
    ("capability", "kept"),
    [(90, ((90,), ())), (86, ((80,), ())), (89, ((80,), ())), (120, ((), (100,))), (70, None)],
)
def test_a_fatbin_is_narrowed_to_what_a_device_takes(capability, kept):
    parts = ((2, 80, b"a" * 24), (2, 90, b"b" * 40), (1, 90, b"c" * 16), (1, 100, b"d" * 8))
    held = fatbin(*parts)
    found = narrowed(held, capability)
    image = read_image(found)
    if kept is None:
        assert found == held
    else:
        assert (image.cubins, image.ptx) == kept
        assert image.runs_on(capability)
        assert found[80:] in [code for _, _, code in parts]
    assert narrowed(PTX.encode(), 90) == PTX.encode()


def test_damaged_files_are_refused_and_never_crash(on_90):
    compiler, binary = on_90
    for code in (b"", b"MZ", b"\x7fELF", b"\x7fELF" + bytes(60), fatbin((2, 90, b"x"))[:-1]):
        assert "kernel.binary" in taken(compiler, code, "plain").detail
    whole = binary.code
    cut = [whole[:end] for end in range(0, len(whole), 97)]
    spoilt = [
        whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :] for i in range(0, len(whole), 61)
    ]
    for damaged in (*cut, *spoilt):
        with contextlib.suppress(ValueError):
            read_image(damaged)


def cubin(names, *, table=None, symbols=()):
    """A cubin of kernels whose names begin at ``symbols`` in the table ``names``."""
    text, places = b"\0", []
    for name in (b".symtab", b".strtab"):
        places.append(len(text))
        text += name + b"\0"
    listed = b"".join(struct.pack("<IBBHQQ", place, 2, 0x10, 1, 0, 0) for place in symbols)
    parts = [(places[0], 2, listed), (places[1], 3, names), (0, 3, text)]
    body, heads = b"", b""
    for place, kind, contents in parts:
        heads += struct.pack(
            "<IIQQQQIIQQ", place, kind, 0, 0, 64 + len(body), len(contents), *[0] * 4
        )
        body += contents
    table = 64 + len(body) if table is None else table
    head = bytearray(64)
    head[:9] = b"\x7fELF\x02\x01\x01\x33\x08"
    struct.pack_into("<H", head, 18, 190)
    struct.pack_into("<Q", head, 40, table)
    struct.pack_into("<I", head, 48, 90 << 8)
    struct.pack_into("<HH", head, 60, 3, 2)
    return bytes(head) + body + heads


def test_a_written_cubin_lists_its_kernels():
    assert list(read_image(cubin(b"\0one\0two\0", symbols=(1, 5))).kernels) == ["one", "two"]


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(cubin(b"x" * (1 << 20), symbols=range(2000)), id="names without end"),
        pytest.param(cubin(b"x" * 5000 + b"\0", symbols=[0]), id="a long name"),
        pytest.param(
            cubin(b"x" * 4000 + b"\0", symbols=range(2000)), id="names that share their bytes"
        ),
        pytest.param(cubin(b"\0one\0", symbols=[1, 1]), id="a kernel twice"),
        pytest.param(cubin(b"\0one", symbols=[1]), id="the last name without end"),
        pytest.param(cubin(b"\xff\0", symbols=[0]), id="no UTF-8"),
        pytest.param(cubin(b"\0", table=2**64 - 1), id="a table beyond any file"),
        pytest.param(fatbin((2, 90, b"x" * 24))[:16] + bytes(88), id="parts without a header"),
    ],
)
def test_hostile_machine_code_is_damaged_in_plain_words(damaged):
    with pytest.raises(ValueError, match=r"^is cut short or damaged$"):
        read_image(damaged)


@pytest.mark.parametrize(
    "hostile",
    [
        ".entry a " * 20_000,
        ".entry a(.param .u64 p){ld.global.nc.u32 %r1, [p];" * 2_000,
        ".entry a(" + ".param .u64 p " * 20_000 + "[",
        ".entry " + "a" * 100_000,
        ".maxntid" + " " * 100_000,
        "/*" * 50_000,
        "\n" * 100_000,
        "ld." * 50_000,
        ".entry a(){ld.global.nc.u32 " + "[" * 50_000 + ";",
        ".entry a(){ld.global.nc.u32 " + "x" * 100_000,
        ".entry a(){" + ":a" * 30_000 + "!",
        ".entry a(.param .b8 p[" + "9" * 5_000 + "]) .maxntid " + "9" * 5_000 + " {}",
    ],
    ids=range(12),
)
def test_hostile_ptx_is_read_in_linear_time(hostile):
    began = time.process_time()
    assert read_image(f".target sm_80\n{hostile}".encode()).ptx == (80,)
    with pytest.raises(ValueError, match="no PTX"):
        read_image(hostile.encode())
    assert time.process_time() - began < 2
