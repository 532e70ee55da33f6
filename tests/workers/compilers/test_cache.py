"""What was compiled once is not compiled again, and nothing wrong ever comes out of the cache."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tuner.space.devices import cuda_device
from tuner.plan import Binary, Build, Usage
from tuner.trial import Code, Rejected, Stage
from workers.compilers.cache import CachedCompiler
from workers.compilers.worker import CompileWorker

BUILD = Build(language="cuda", file="k.cu", source="source", entries=("run",), defines=(("N", 1),))
REJECTED = Rejected(stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail="no")


@dataclass
class Counting:
    """Makes a binary up, or rejects, and counts."""

    rejects: bool = False
    compiled: list[Build] = field(default_factory=list)

    def compile(self, build):
        self.compiled.append(build)
        if self.rejects:
            return REJECTED
        return Binary(
            build=build.digest,
            code=build.digest.encode() * 10,
            usage=(("run", Usage(registers=12, written=(0,))),),
            symbols=(("run", "_Z3run"),),
            compile_seconds=0.1,
            persists=True,
            reaches=("clock",),
        )


def cached(folder, compiler=None, fingerprint="one", **more):
    compiler = compiler or Counting()
    return CachedCompiler(compiler, folder, fingerprint, **more), compiler


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_another_process_finds_what_one_compiled(tmp_path):
    first = cached(tmp_path)[0].compile(BUILD)
    again, compiler = cached(tmp_path)
    assert again.compile(BUILD) == first
    assert not compiler.compiled


@pytest.mark.parametrize(
    "other",
    [
        replace(BUILD, source="source "),
        replace(BUILD, defines=(("N", 2),)),
        replace(BUILD, options=("--use_fast_math",)),
        replace(BUILD, headers=(("h.cuh", "text"),)),
        replace(BUILD, entries=("run", "more")),
    ],
)
def test_whatever_reaches_the_compiler_tells_entries_apart(tmp_path, other):
    first, compiler = cached(tmp_path)
    first.compile(BUILD)
    assert first.compile(other).build == other.digest
    assert compiler.compiled == [BUILD, other]


def test_another_compiler_or_architecture_is_a_miss(tmp_path):
    cached(tmp_path)[0].compile(BUILD)
    other, compiler = cached(tmp_path, fingerprint="two")
    other.compile(BUILD)
    assert compiler.compiled == [BUILD]


def test_rejections_are_not_kept(tmp_path):
    assert cached(tmp_path, Counting(rejects=True))[0].compile(BUILD) == REJECTED
    assert isinstance(cached(tmp_path)[0].compile(BUILD), Binary)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1), flip=st.integers(0, 255))
def test_a_torn_or_damaged_entry_is_a_miss_and_is_replaced(tmp_path, cut, flip):
    kept, _ = cached(tmp_path)
    whole = kept.compile(BUILD)
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    at = int(cut * (len(data) - 1))
    if flip:
        data[at] ^= flip
    else:
        del data[at:]
    path.write_bytes(data)
    again, compiler = cached(tmp_path)
    assert again.compile(BUILD) == whole
    assert compiler.compiled == [BUILD]
    assert cached(tmp_path)[0].compile(BUILD) == whole


def test_a_folder_that_cannot_be_used_costs_nothing_but_the_time(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert isinstance(cached(tmp_path / "file")[0].compile(BUILD), Binary)


def test_it_stays_within_its_size(tmp_path):
    for number in range(20):
        cached(tmp_path, limit_bytes=5000)[0].compile(replace(BUILD, defines=(("N", number),)))
    assert 0 < sum(path.stat().st_size for path in files(tmp_path)) < 5000 + 2000


def test_a_second_worker_takes_cuda_code_from_the_folder(tmp_path):
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    build = replace(BUILD, source='extern "C" __global__ void run(int* a) { *a = N; }')
    with CompileWorker(cuda_device(90), tmp_path) as worker:
        (first,) = worker.compile([build])
    (entry,) = files(tmp_path)
    before = entry.stat().st_mtime_ns
    with CompileWorker(cuda_device(90), tmp_path) as worker:
        assert worker.compile([build]) == (first,)
    assert entry.stat().st_mtime_ns > before
    assert files(tmp_path) == [entry]
