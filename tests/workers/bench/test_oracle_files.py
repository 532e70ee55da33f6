"""Answers as files: made once by whoever comes first, mapped by the others, gone with the last."""

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tuner.space.devices import cuda_device, opencl_cpu
from tests.tuner.space.experiments import experiment
from tests.workers.bench.test_device_bench import AFFINE, GOOD, WRONG
from tests.workers.harness import Laboratory
from tuner.candidate import BASELINE, Candidate
from tuner.engine.work import BenchSetup
from tuner.errors import EnvironmentProblem
from tuner.plan import Plan
from tuner.trial import Code, Configuration, Rejected, Stage
from workers.bench.oracle_files import OracleFiles, OracleRecord
from workers.bench.preparation import Preparation
from workers.bench.supervisor import Supervisor
from workers.comparison import Expected
from workers.scratch import runtime_directory

PROBLEM = experiment({"n": 256})
NOTHING = Candidate(
    trial=BASELINE, configuration=Configuration(()), plan=Plan(builds=(), cells=()), binaries=()
)
WANT = np.arange(12.0).reshape(3, 4)


def prep(device=None, secret: int = 1) -> Preparation:
    setup = BenchSetup(experiment=PROBLEM, baseline=NOTHING, secret=secret)
    return Preparation(setup=setup, device=device or cuda_device(90), bindings=(), arguments={})


def kept(files: OracleFiles, record: OracleRecord):
    path = record.expected["out"].path
    return files.kept("0", "out.want", path, "float64", WANT.shape)


def maker(answers: OracleFiles, made: list[str], name: str = "0"):
    def make() -> OracleRecord:
        made.append(name)
        expected = Expected(
            path=answers.keep(name, "out.want", WANT), dtype="float64", mode="close"
        )
        contents = {"x": answers.write(name, "x", np.arange(5, dtype=np.uint8))}
        return OracleRecord(contents=contents, expected={"out": expected}, notes=("seen",))

    return make


@pytest.fixture
def two(tmp_path):
    pair = [OracleFiles(prep(), tmp_path, threading.Event()) for _ in range(2)]
    yield pair
    for one in pair:
        one.close()


def test_the_second_process_maps_what_the_first_made(two):
    made: list[str] = []
    answers = [one.get("0", maker(one, made)) for one in two]
    assert made == ["0"]
    assert answers[0] == answers[1]
    assert answers[0].notes == ("seen",)
    assert Path(answers[0].contents["x"]).read_bytes() == bytes(range(5))
    for one, answer in zip(two, answers, strict=True):
        want = kept(one, answer)
        np.testing.assert_array_equal(want, WANT)
        assert not want.flags.writeable


def test_who_comes_while_it_is_made_waits_for_it(two):
    made: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> OracleRecord:
        begun.set()
        assert go_on.wait(10)
        return maker(two[0], made)()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(two[0].get, "0", slow)
        assert begun.wait(10)
        second = pool.submit(two[1].get, "0", maker(two[1], made))
        go_on.set()
        assert first.result() == second.result()
    assert made == ["0"]


def test_who_waits_can_be_told_to_leave(two, tmp_path):
    abort = threading.Event()
    impatient = OracleFiles(prep(), tmp_path, abort)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> OracleRecord:
        begun.set()
        assert go_on.wait(10)
        return maker(two[0], [])()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(two[0].get, "0", slow)
        assert begun.wait(10)
        second = pool.submit(impatient.get, "0", maker(impatient, []))
        abort.set()
        with pytest.raises(EnvironmentProblem, match="closed while waiting"):
            second.result(10)
        go_on.set()
        first.result(10)
    impatient.close()


def test_a_maker_that_failed_half_way_is_followed_by_another(two):
    def fails() -> OracleRecord:
        two[0].write("0", "x", np.arange(3, dtype=np.uint8))
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        two[0].get("0", fails)
    made: list[str] = []
    answer = two[1].get("0", maker(two[1], made))
    assert made == ["0"]
    assert Path(answer.contents["x"]).read_bytes() == bytes(range(5))


def test_a_refusal_is_kept_like_an_answer(two):
    why = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="no", shape=0)
    refusal = OracleRecord(contents={}, expected={}, rejected=why)
    assert two[0].get("0", lambda: refusal) == refusal
    assert two[1].get("0", maker(two[1], [])) == refusal


def test_the_last_to_leave_removes_the_files(two):
    answer = two[0].get("0", maker(two[0], []))
    path = Path(answer.contents["x"])
    two[0].close()
    two[0].close()
    assert path.exists()
    two[1].close()
    assert not path.parent.exists()


def test_another_secret_or_device_has_answers_of_its_own(two, tmp_path):
    made: list[str] = []
    two[0].get("0", maker(two[0], made))
    for other in (prep(secret=2), prep(replace(cuda_device(90), name="another"))):
        answers = OracleFiles(other, tmp_path, threading.Event())
        answers.get("0", maker(answers, made))
        answers.close()
    assert len(made) == 3


def test_a_second_bench_of_a_host_asks_the_baseline_nothing(monkeypatch, tmp_path):
    """OpenCL on a processor stands in for devices with memory of their own."""
    describe, get, made = Supervisor.describe, OracleFiles.get, []

    def elsewhere(server):
        device, _ = describe(server)
        return replace(device, is_cpu=False), "elsewhere"

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Supervisor, "describe", elsewhere)
    monkeypatch.setattr("workers.bench.device_bench.measure_ceilings", lambda *_: "not here")
    monkeypatch.setattr(
        OracleFiles,
        "get",
        lambda files, name, make: get(files, name, lambda: (made.append(name), make())[1]),
    )
    with closing(Laboratory(AFFINE)) as first:
        first.confirmed(first.candidate(GOOD))
        count = len(made)
        assert count >= 7
        with closing(Laboratory(AFFINE)) as second:
            assert second.prepared.notes == first.prepared.notes
            assert second.outcome(WRONG).code is Code.WRONG_RESULT
            second.confirmed(second.candidate(GOOD))
            assert len(made) == count
            first.close()
            assert list(runtime_directory().glob("answers-*/*.json"))
    assert not list(runtime_directory().glob("answers-*"))


def test_on_a_cpu_device_expected_values_have_no_name(tmp_path):
    answers = OracleFiles(prep(opencl_cpu()), tmp_path, threading.Event())
    answer = answers.get("0", maker(answers, []))
    assert answer.expected["out"].path == ""
    np.testing.assert_array_equal(kept(answers, answer), WANT)
    assert [path.name for path in tmp_path.rglob("*")] == ["0.x.raw"]
    answers.close()
