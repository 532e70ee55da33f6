"""The bench on a real device: what it refuses, what it survives, what it leaves behind."""

import contextlib
import os
import random
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.workers.harness import QUICK, Laboratory, recorded_processes
from tests.workers.test_process import alive, fork_server, wait_for
from tuner.candidate import BASELINE
from tuner.errors import EnvironmentProblem
from tuner.results.notes import note_texts
from tuner.trial import Code, Full, Measured, Rejected, Stage
from workers.bench import supervisor, trial_runner
from workers.bench.baseline_rejections import of_baseline
from workers.bench.confirmation import Confirmation
from workers.bench.deadlines import Deadlines
from workers.bench.device_bench import DeviceBench
from workers.bench.oracle import Oracle
from workers.bench.session import BenchSession
from workers.bench.supervisor import Supervisor
from workers.forking import ChildFailed
from workers.integrity.timing_recheck import Accepted
from workers.scratch import runtime_directory

EXPLOITS = Path(__file__).parents[2] / "exploits"
AFFINE = EXPLOITS / "experiments" / "affine" / "experiment.yaml"
HEAD = "kernel void affine(global float *out, global const float *x, global const float *y, int n)"
GOOD = f"{HEAD} {{ int i = get_global_id(0); if (i < n) out[i] = 2 * x[i] + y[i]; }}"
CRASH = f"{HEAD} {{ *(volatile global int *)(ulong)n = 1; }}"
HANG = f"{HEAD} {{ volatile global float *o = out; o[0] = 1; while (o[0] == 1) o[1] = o[0]; }}"
WRONG = f"{HEAD} {{ int i = get_global_id(0); if (i < n) out[i] = 2 * x[i]; }}"
BROKEN = f"{HEAD} {{ out[0] = absent; }}"


@pytest.fixture(scope="module", autouse=True)
def runtime_folder(tmp_path_factory) -> Iterator[Path]:
    """Where benches of these tests, and no others, keep their files."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("runtime")))
        yield runtime_directory()


@pytest.fixture(scope="module")
def laboratory(runtime_folder) -> Iterator[Laboratory]:
    made = Laboratory(AFFINE)
    yield made
    made.close()


def bench_folders(runtime_folder: Path) -> set[Path]:
    return set(runtime_folder.glob("bench-*"))


@pytest.fixture
def launched(monkeypatch) -> list[int]:
    """The process of each burst from now on."""
    return recorded_processes(monkeypatch)


def changed(folder: Path, **texts: dict[str, str]) -> Path:
    """A copy of the affine experiment with replaced texts: file stem → (old → new)."""
    copy = folder / "affine"
    shutil.copytree(AFFINE.parent, copy)
    for stem, pairs in texts.items():
        (path,) = copy.glob(f"{stem}.*")
        text = path.read_text()
        for old, new in pairs.items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
    return copy / "experiment.yaml"


DOMAIN = '  domain: ["1 <= n", "n <= 65536"]\n'
TOLERANT = "shape: [n], tolerance: {rtol: 0, atol: 100}}\n  - {name: x"
STRIDED = "shape: [n], strides: [2]}\n  - {name: x"
EXACT = "shape: [n], compare: exact}\n  - {name: x"


def refused(folder: Path, **texts: dict[str, str]) -> Rejected:
    laboratory = Laboratory(changed(folder, **texts))
    laboratory.close()
    result = laboratory.prepared.result
    assert isinstance(result, Rejected), result
    return result


def test_a_good_experiment_is_prepared_on_tune_and_held_out_shapes(laboratory) -> None:
    cells = laboratory.prepared.result
    assert isinstance(cells, tuple)
    assert len(cells) == 3
    for cell in cells:
        assert isinstance(cell, Full)
        assert cell.samples >= 40
        assert cell.median_ns == cell.baseline_ns > 0
    (note,) = laboratory.prepared.notes
    assert note.startswith("infinity and NaN are not tested in x, y: say in `specials`")


def test_a_good_candidate_is_measured_on_every_tune_shape(laboratory) -> None:
    outcome = laboratory.outcome(GOOD)
    assert isinstance(outcome, Measured)
    assert len(outcome.cells) == 2
    assert all(isinstance(cell, Full) and cell.samples >= 40 for cell in outcome.cells)


def test_code_that_keeps_lines_in_the_cache_leaves_no_child_to_others(laboratory, launched) -> None:
    candidate = laboratory.candidate(GOOD)
    keeping = replace(
        candidate, binaries=tuple(replace(b, persists=True) for b in candidate.binaries)
    )
    assert isinstance(laboratory.bench.run(keeping).outcome, Measured)
    assert not alive(launched[-1])
    assert isinstance(laboratory.outcome(GOOD), Measured)


def test_the_oracle_is_in_no_file_that_a_candidate_could_read(laboratory, runtime_folder) -> None:
    held = {path: path.read_bytes() for path in runtime_folder.rglob("*") if path.is_file()}
    inputs = [path for path in held if path.name.endswith(".x.raw")]
    assert inputs
    for path in inputs:
        x, y = (
            np.frombuffer(held[path.with_name(path.name.replace(".x.", f".{name}."))], np.float32)
            for name in "xy"
        )
        for dtype in (np.float32, np.float64):
            assert (2 * x.astype(dtype) + y).tobytes() not in held.values()


def test_inputs_differ_between_runs(laboratory, runtime_folder) -> None:
    (folder,) = bench_folders(runtime_folder)
    other = Laboratory(AFFINE, secret=8)
    (another,) = bench_folders(runtime_folder) - {folder}
    same = [path for path in folder.glob("*.x.raw") if (another / path.name).exists()]
    assert same
    assert all(path.read_bytes() != (another / path.name).read_bytes() for path in same)
    other.close()


@pytest.mark.parametrize(
    ("texts", "code", "says"),
    [
        (
            {"reference": {"2 * x + y": "2 * x + y + 1"}},
            Code.DISAGREES,
            r"the baseline disagrees with its reference: out\[\d+\] is .*, expected ",
        ),
        (
            {"reference": {"2 * x + y": "2 * x + y + (len(x) > 1024)"}},
            Code.DISAGREES,
            "the baseline disagrees with its reference",
        ),
        (
            {"reference": {"2 * x + y": "x * float('nan')"}},
            Code.DISAGREES,
            "the baseline disagrees with its reference",
        ),
        (
            {"affine": {"i < n": "i < n - 3"}},
            Code.NOT_WRITTEN,
            r"the baseline never writes 3 elements, such as out\[1021\]; launch as many blocks",
        ),
        (
            {"experiment": {"shape: [n]": "shape: [n * 10 ** 8]"}},
            Code.OUT_OF_MEMORY,
            r"the arguments of n=1024 take \S+ GiB, .*: take smaller shapes",
        ),
        (
            {"affine": {"y[i]);": "out[i]);"}},
            Code.NOT_WRITTEN,
            "its kind is 'out': if the kernel reads it too, say 'inout'",
        ),
        (
            {"affine": {"y[i]);": "NAN);"}},
            Code.NOT_FINITE,
            "the baseline leaves NaN in every element of out; its kind is 'out'",
        ),
        (
            {"affine": {"out[i] = fma": "out[i + 1] = out[i] = fma"}},
            Code.OUT_OF_BOUNDS,
            "the baseline itself fails: writes a byte behind the end of out",
        ),
        (
            {"affine": {"out[i] = fma(2.0f, x[i], y[i]);": "*(global int *)(ulong)n = 1;"}},
            Code.CRASH,
            "the baseline itself fails: killed by SIGSEGV",
        ),
        (
            {"reference": {"return 2": "raise ValueError('no') or 2"}},
            Code.SPEC_ERROR,
            r"reference.py:affine: ValueError: no \(line 2",
        ),
        (
            {"reference": {"2 * x + y": "(2 * x + y)[:5]"}},
            Code.SPEC_ERROR,
            r"out has shape \(5,\), not \(1024,\)",
        ),
        (
            {"experiment": {"shape: [n], align: 4}\n  - {name: x": TOLERANT}},
            Code.WRONG_RESULT,
            "the check proves nothing: filling it with zeros passes for out",
        ),
    ],
    ids=lambda value: value if isinstance(value, Code) else None,
)
def test_what_cannot_judge_is_refused(tmp_path, texts, code, says) -> None:
    rejected = refused(tmp_path, **texts)
    assert rejected.code == code
    assert re.search(says, rejected.detail), rejected.detail


@pytest.mark.parametrize("away", ["(1 + 4e-5f)", "(1 - 4e-5f)"])
def test_a_reference_that_is_off_admits_at_most_three_times_the_tolerance(
    tmp_path, away: str
) -> None:
    off = {"reference": {"2 * x + y": "(2 * x + y) * (1 + 9e-6)"}}
    with closing(Laboratory(changed(tmp_path, **off))) as laboratory:
        assert isinstance(laboratory.outcome(GOOD), Measured)
        outcome = laboratory.outcome(GOOD.replace("2 * x[i] + y[i]", f"(2 * x[i] + y[i]) * {away}"))
    assert isinstance(outcome, Rejected)
    assert outcome.code == Code.WRONG_RESULT
    assert "times the bound" in outcome.detail


def test_a_baseline_that_faults_on_alignment_is_told_of_align() -> None:
    fault = Rejected(stage=Stage.LAUNCH, code=Code.ILLEGAL_ADDRESS, detail="misaligned address")
    assert "give them `align: 16`" in of_baseline(fault).detail
    assert "align" not in of_baseline(replace(fault, detail="illegal address")).detail


def test_a_copy_is_let_pass_where_the_operation_is_one(tmp_path) -> None:
    texts = {
        "affine": {"fma(2.0f, x[i], y[i])": "x[i]"},
        "reference": {"2 * x + y": "x"},
    }
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    assert not isinstance(laboratory.prepared.result, Rejected)


def test_without_a_reference_the_report_says_so(tmp_path) -> None:
    laboratory = Laboratory(changed(tmp_path, experiment={"reference: reference.py:affine\n": ""}))
    assert not isinstance(laboratory.prepared.result, Rejected)
    assert "no reference: the baseline alone is the oracle" in laboratory.prepared.notes
    assert isinstance(laboratory.outcome(WRONG), Rejected)
    laboratory.close()


@pytest.mark.parametrize(("source", "code"), [(HANG, Code.HANG), (CRASH, Code.CRASH)])
def test_a_disaster_costs_one_trial(laboratory, source, code) -> None:
    laboratory.outcome(GOOD)
    began = time.monotonic()
    outcome = laboratory.outcome(source)
    assert isinstance(outcome, Rejected)
    assert outcome.code == code
    assert time.monotonic() - began < 30
    assert isinstance(laboratory.outcome(GOOD), Measured)


def test_a_child_killed_from_outside_is_replaced(laboratory, launched) -> None:
    laboratory.outcome(GOOD)
    os.kill(launched[-1], signal.SIGKILL)
    outcomes = [laboratory.outcome(GOOD) for _ in range(2)]
    assert isinstance(outcomes[-1], Measured)


def killing(
    monkeypatch, during: type, method: str, kills: int, after: int, *, server: bool = False
) -> list[int]:
    """Kill the child so many times within calls of a method, each after some launches.

    With ``server`` the fork server is killed in its place.
    """
    run_bursts, entered = Supervisor.run_bursts, getattr(during, method)
    killed: list[int] = []
    launches: list[int] = []

    def enter(*given, **more):
        launches[:] = [0]
        try:
            return entered(*given, **more)
        finally:
            launches.clear()

    def kill(supervisor, *given, **more):
        if launches and len(killed) < kills:
            launches[0] += 1
            if launches[0] > after:
                killed.append(supervisor.pid)
                launches.clear()
                os.kill(fork_server(supervisor.pid) if server else supervisor.pid, signal.SIGKILL)
        return run_bursts(supervisor, *given, **more)

    monkeypatch.setattr(during, method, enter)
    monkeypatch.setattr(Supervisor, "run_bursts", kill)
    return killed


@pytest.mark.parametrize("after", [0, 2])
def test_a_child_killed_within_a_trial_costs_no_candidate(laboratory, monkeypatch, after) -> None:
    killed = killing(monkeypatch, trial_runner.TrialRunner, "trial", 1, after)
    assert isinstance(laboratory.outcome(f"{GOOD} // killed after {after}"), Measured)
    assert len(killed) == 1


def test_whose_child_is_killed_again_is_called_the_reason(laboratory, monkeypatch) -> None:
    killed = killing(monkeypatch, trial_runner.TrialRunner, "trial", 2, 0)
    outcome = laboratory.outcome(f"{GOOD} // killed twice")
    assert isinstance(outcome, Rejected)
    assert (outcome.code, outcome.detail) == (Code.CRASH, "killed by SIGKILL")
    assert len(killed) == 2


@pytest.mark.parametrize(
    ("during", "method"),
    [
        (trial_runner.TrialRunner, "trial"),
        pytest.param(Confirmation, "run", marks=pytest.mark.slow),
    ],
)
def test_a_loss_of_the_fork_server_is_no_verdict(laboratory, monkeypatch, during, method) -> None:
    candidate = laboratory.candidate(f"{GOOD} // lost in {method}")
    killing(monkeypatch, during, method, 1, 2, server=True)

    def work() -> object:
        if during is Confirmation:
            return laboratory.confirmed(candidate, process=1).failed
        return type(laboratory.bench.run(candidate).outcome)

    with pytest.raises(ChildFailed, match="killed with its fork server"):
        work()
    assert work() == (() if during is Confirmation else Measured)


@pytest.mark.parametrize("after", [0, 7])
def test_a_child_killed_within_a_confirmation_refutes_nobody(
    laboratory, monkeypatch, after
) -> None:
    killed = killing(monkeypatch, Confirmation, "run", 1, after)
    confirmed = laboratory.confirmed(laboratory.candidate(f"{GOOD} // {after}"), process=1)
    assert not confirmed.failed
    assert len(confirmed.samples) == 6
    assert len(killed) == 1


@pytest.mark.slow
def test_a_loss_of_the_fork_server_while_it_prepares_is_no_verdict(laboratory, monkeypatch) -> None:
    killing(monkeypatch, Oracle, "case", 1, 0, server=True)
    with pytest.raises(ChildFailed, match="killed with its fork server"):
        laboratory.bench.prepare(laboratory.setup)
    assert not isinstance(laboratory.bench.prepare(laboratory.setup).result, Rejected)


def test_a_child_killed_while_it_prepares_is_replaced(laboratory, monkeypatch) -> None:
    killed = killing(monkeypatch, Oracle, "case", 2, 0)
    assert not isinstance(laboratory.bench.prepare(laboratory.setup).result, Rejected)
    assert len(killed) == 2


def test_a_binary_loaded_before_gets_a_new_child(laboratory) -> None:
    counting = GOOD.replace("kernel", "global int used; kernel", 1).replace(
        "if (i < n)", "if (i == 0) used++; if (i < n && used < 1800)"
    )
    for _ in range(7):
        assert isinstance(laboratory.outcome(counting), Measured)


def test_the_baseline_is_timed_again_now_and_then(laboratory, monkeypatch) -> None:
    monkeypatch.setattr(trial_runner, "RETIME_BASELINE_AFTER", 2)
    seen = set()
    for number in range(3):
        outcome = laboratory.outcome(GOOD + f"/* {number} */")
        assert isinstance(outcome, Measured)
        seen.add(tuple(cell.baseline_ns for cell in outcome.cells if isinstance(cell, Full)))
    assert 1 < len(seen) <= 3


def test_a_finalist_is_rechecked_after_all_timings_and_the_recheck_counts(
    laboratory, monkeypatch
) -> None:
    told = []

    def recheck_timing(prep, session, loaded, baseline, shape, cache, samples, again):
        told.append((shape, len(samples)))
        return Accepted([1.0], 1.5, corrected=shape == 2)

    monkeypatch.setattr("workers.bench.interleaving.recheck_timing", recheck_timing)
    candidate = laboratory.candidate(f"{GOOD} // rechecked")
    confirmed = laboratory.confirmed(candidate, process=1)
    assert not confirmed.failed
    (said,) = [note for note in confirmed.notes if "on new inputs" in str(note)]
    (held_out,) = laboratory.experiment.shapes.held_out
    assert said.startswith(f"trial {candidate.trial} at {held_out}: ")
    repeats = laboratory.experiment.measure.repeats
    assert [shape for shape, count in told if count >= repeats] == [0, 2, 1]  # small ones first
    for sample in confirmed.samples:
        assert (sample.median_ns == 1.0) == (sample.trial != BASELINE)
        assert sample.unseen == (None if sample.trial == BASELINE else 1.5)


def test_a_candidate_is_rechecked_on_inputs_of_its_own(laboratory, monkeypatch) -> None:
    real, checked = BenchSession.time_on_own_inputs, []

    def slow(session, loaded, case, cache, by=None):
        checked.append(by)
        return real(session, loaded, case, cache, by) + (1e9 if by else 0.0)

    monkeypatch.setattr(BenchSession, "time_on_own_inputs", slow)
    outcome = laboratory.outcome(f"{GOOD} // is slow there")
    assert isinstance(outcome, Rejected)
    assert "remembers its inputs" in outcome.detail
    assert None in checked, "the baseline was timed there, too"


def test_confirmation_names_who_failed_and_times_the_rest(laboratory) -> None:
    good = laboratory.candidate(GOOD, trial=4)
    crash = laboratory.candidate(CRASH, trial=5)
    wrong = laboratory.candidate(WRONG, trial=6)
    confirmed = laboratory.confirmed(good, crash, wrong, process=1)
    assert {trial: reason.code for trial, reason in confirmed.failed} == {
        5: Code.CRASH,
        6: Code.WRONG_RESULT,
    }
    seen = {(sample.trial, sample.shape, sample.cache) for sample in confirmed.samples}
    assert seen == {(trial, shape, "cold") for trial in (BASELINE, 4) for shape in range(3)}
    assert all(sample.median_ns > 0 for sample in confirmed.samples)
    assert isinstance(laboratory.outcome(GOOD), Measured)


def test_a_process_of_confirmation_times_its_part_alone(laboratory) -> None:
    """Wrong on the held-out shape alone: found with the rest."""
    held_out = laboratory.experiment.shapes.held_out[0].symbols["n"]
    wrong = GOOD.replace("y[i];", f"y[i] + (n == {held_out});")
    candidate = laboratory.candidate(wrong, trial=7)
    tuned = laboratory.confirmed(candidate, process=1, scope="tune")
    assert (tuned.scope, tuned.failed) == ("tune", ())
    seen = {(sample.trial, sample.shape) for sample in tuned.samples}
    assert seen == {(trial, shape) for trial in (BASELINE, 7) for shape in (0, 1)}
    rest = laboratory.confirmed(candidate, process=2, scope="rest")
    assert {trial: why.code for trial, why in rest.failed} == {7: Code.WRONG_RESULT}
    assert {(s.trial, s.shape) for s in rest.samples} == {(BASELINE, 2)}


def test_a_device_whose_canary_dies_twice_is_quarantined(monkeypatch) -> None:
    laboratory = Laboratory(AFFINE)
    assert isinstance(laboratory.outcome(CRASH), Rejected)
    load = Supervisor.load

    def broken(supervisor, binaries):
        return load(supervisor, [replace(binary, code=b"garbage") for binary in binaries])

    monkeypatch.setattr(Supervisor, "load", broken)
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="quarantined"):
            laboratory.outcome(GOOD)
    laboratory.close()


def test_closing_aborts_a_call_and_leaves_nothing_behind(runtime_folder, launched) -> None:
    before = bench_folders(runtime_folder)
    laboratory = Laboratory(AFFINE, deadlines=Deadlines(launch=300, first=300))
    assert bench_folders(runtime_folder) > before
    assert alive(launched[-1])
    prepared = len(launched)
    ended = threading.Event()

    def hang() -> None:
        with contextlib.suppress(EnvironmentProblem):
            laboratory.outcome(HANG)
        ended.set()

    thread = threading.Thread(target=hang)
    thread.start()
    assert wait_for(lambda: len(launched) > prepared)
    assert not ended.is_set()
    laboratory.close()
    assert ended.wait(20)
    thread.join()
    assert wait_for(lambda: not any(alive(pid) for pid in launched))
    assert bench_folders(runtime_folder) == before


def test_asked_before_it_is_prepared_the_bench_says_so(laboratory) -> None:
    bench = DeviceBench("opencl", 0, deadlines=QUICK)
    with pytest.raises(EnvironmentProblem, match="is not prepared"):
        bench.run(laboratory.candidate(GOOD))
    bench.close()


def test_no_such_device_is_one_message() -> None:
    bench = DeviceBench("opencl", 99)
    with pytest.raises(EnvironmentProblem, match="no OpenCL device 99: there are"):
        bench.device()
    bench.close()


def test_a_storm_of_bad_candidates_leaves_the_right_outcomes(laboratory) -> None:
    choices = random.Random(5)
    wanted = {
        GOOD: None,
        WRONG: Code.WRONG_RESULT,
        CRASH: Code.CRASH,
        BROKEN: Code.COMPILE_ERROR,
        f"{HEAD} {{ }}": Code.NOT_WRITTEN,
        f"{HEAD} {{ out[-1] = 1; }}": Code.OUT_OF_BOUNDS,
    }
    for number in range(16):
        source = choices.choice(list(wanted))
        outcome = laboratory.outcome(f"{source}\n/* {number} */")
        code = outcome.code if isinstance(outcome, Rejected) else None
        assert code == wanted[source], outcome


def test_an_input_that_never_matters_is_noted(tmp_path) -> None:
    texts = {
        "affine": {"fma(2.0f, x[i], y[i])": "fma(2.0f, x[i], 1.0f)"},
        "reference": {"2 * x + y": "2 * x + 1"},
    }
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    assert not isinstance(laboratory.prepared.result, Rejected)
    assert "input y does not change the result" in laboratory.prepared.notes


def test_wide_tolerances_and_a_domain_without_odd_shapes_are_noted(tmp_path) -> None:
    line = "out, kind: out, dtype: float32, shape: [n], align: 4"
    wide = f"{line}, tolerance: {{rtol: 0.4, atol: 1.0e-5}}"
    texts = {"experiment": {line: wide, DOMAIN: ""}}
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    notes = laboratory.prepared.notes
    assert (
        "out may err by 0.4 of its value (`tolerance`); the default for float32 is 1e-05" in notes
    )
    assert any("the spec's own shapes alone: give a `domain`" in one for one in notes)


@pytest.mark.parametrize(
    ("constant", "note"),
    [
        ("x", "input x never changes: a kernel that remembers what follows from it would not be"),
        ("xy", "no input ever changes: a kernel that kept its first answer would be right"),
        ("y", ""),
    ],
)
def test_an_input_that_never_changes_is_noted_if_none_like_it_can_be_made(
    tmp_path, constant, note
) -> None:
    """Whole numbers may be indices; of fractions others are made that are close by."""
    fill = "values: {python: reference.py:same}"
    texts = {
        "affine": {"const float *x": "const int *x"},
        "experiment": {"x, kind: in, dtype: float32": "x, kind: in, dtype: int32"},
        "reference": {
            "def affine": "def same(shape, argument, seed):\n    import numpy as np\n"
            "    return np.arange(shape['n'], dtype='i4' if argument == 'x' else 'f4')\n\n\n"
            "def affine"
        },
    }
    for name in constant:
        dtype = "int32" if name == "x" else "float32"
        line = f"{name}, kind: in, dtype: {dtype}, shape: [n], align: 4"
        texts["experiment"][line] = f"{line}, {fill}"
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    assert not isinstance(laboratory.prepared.result, Rejected), laboratory.prepared.result
    found = [one for one in laboratory.prepared.notes if "infinity" not in one]
    assert len(found) == bool(note)
    assert all(one.startswith(note) for one in found)


@pytest.mark.parametrize(("seed", "fits"), [(", same_seed: true", True), ("", False)])
def test_arrays_of_one_function_fit_each_other_where_they_have_one_seed(
    tmp_path, seed, fits
) -> None:
    """Two arrays that hold the same numbers, in another order each, in all test cases."""
    texts = {
        "experiment": {
            f"{name}, kind: in, dtype: float32, shape: [n], align: 4": f"{name}, kind: in, "
            f"dtype: float32, shape: [n], align: 4, values: {{python: reference.py:both{seed}}}"
            for name in "xy"
        },
        "reference": {
            "def affine(": "def both(shape, argument, seed):\n    import numpy as np\n"
            "    found = np.random.default_rng(seed).standard_normal(shape['n'])\n"
            "    return found if argument == 'x' else found[::-1]\n\n\n"
            "def checked(x, y, **more):\n"
            "    if (x != y[::-1]).any():\n"
            "        raise ValueError('x and y do not fit')\n"
            "    return affine(x=x, y=y)\n\n\n"
            "def affine("
        },
    }
    texts["experiment"]["reference: reference.py:affine"] = "reference: reference.py:checked"
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    result = laboratory.prepared.result
    if fits:
        assert not isinstance(result, Rejected), result
        assert not any("fit" in str(note) for note in laboratory.prepared.notes)
    else:
        assert isinstance(result, Rejected)
        assert "x and y do not fit" in result.detail


def counted(extra: str) -> dict[str, dict[str, str]]:
    """The affine baseline, every second launch off by ``extra``, and no reference."""
    return {
        "affine": {
            "kernel void": "global int launches[4096];\nkernel void",
            "fma(2.0f, x[i], y[i])": f"fma(2.0f, x[i], y[i]) + {extra} * (launches[i]++ % 2)",
        },
        "experiment": {"reference: reference.py:affine\n": ""},
    }


def test_a_baseline_that_varies_a_little_widens_its_bound(tmp_path) -> None:
    laboratory = Laboratory(changed(tmp_path, **counted("0.001f")))
    laboratory.close()
    assert any("varies between runs" in note for note in laboratory.prepared.notes)


@pytest.mark.parametrize(("off", "near"), [(0.03, False), (0.08, True)])
def test_a_baseline_that_errs_by_most_of_its_tolerance_has_a_note(tmp_path, off, near) -> None:
    tolerant = TOLERANT.replace("100", "0.1")
    texts = {
        "experiment": {"shape: [n], align: 4}\n  - {name: x": tolerant},
        "reference": {"2 * x + y": f"2 * x + y + {off}"},
    }
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    assert not isinstance(laboratory.prepared.result, Rejected)
    notes = [note for note in laboratory.prepared.notes if "allow more" in str(note)]
    assert len(notes) == near


def test_what_lies_between_strided_elements_is_no_result_that_varies(tmp_path) -> None:
    texts = {
        "affine": {"out[i] = fma": "out[2 * i] = fma"},
        "experiment": {"shape: [n], align: 4}\n  - {name: x": STRIDED},
    }
    laboratory = Laboratory(changed(tmp_path, **texts))
    laboratory.close()
    assert not isinstance(laboratory.prepared.result, Rejected)
    assert not any("varies" in note for note in laboratory.prepared.notes)


def test_a_baseline_that_varies_where_nothing_may_is_refused(tmp_path) -> None:
    texts = counted("1.0f")
    texts["experiment"]["shape: [n], align: 4}\n  - {name: x"] = EXACT
    rejected = refused(tmp_path, **texts)
    assert "the baseline is not deterministic: out[" in rejected.detail


def test_a_baseline_that_drifts_is_refused(tmp_path) -> None:
    texts = counted("0.001f")
    pairs = texts["affine"]
    texts["affine"] = {old: new.replace(" % 2", "") for old, new in pairs.items()}
    rejected = refused(tmp_path, **texts)
    assert rejected.detail.startswith("the baseline itself fails in a second process: out[")


def test_a_shape_too_small_to_tell_is_no_reason_to_refuse(tmp_path) -> None:
    spec = changed(
        tmp_path,
        experiment={
            "dtype: float32, shape: [n], align: 4}\n  - {name: x": "dtype: bool, shape: [n]}\n"
            "  - {name: x",
            "{n: 2048}": "{n: 1}",
            "reference: reference.py:affine\n": "",
        },
        affine={
            "global float *out": "global uchar *out",
            "fma(2.0f, x[i], y[i])": "x[i] > 0 && y[i] > 0",
        },
    )
    for secret in range(3):
        small = Laboratory(spec, secret=secret)
        small.close()
        assert isinstance(small.prepared.result, tuple), small.prepared.result


def test_a_thread_that_outlives_its_launches_rejects_its_candidate_alone(monkeypatch) -> None:
    # With a bench of its own: no baseline is checked in a new child before the candidate.
    with closing(Laboratory(AFFINE)) as fresh:
        good = fresh.candidate(GOOD)
        with monkeypatch.context() as patched:
            patched.setattr(supervisor, "keeps_running", lambda pid: True)
            outcome = fresh.bench.run(good).outcome
        assert isinstance(outcome, Rejected)
        assert outcome.code is Code.HANG
        assert "a thread goes on with work" in outcome.detail
        assert isinstance(fresh.bench.run(good).outcome, Measured)


def test_a_crash_on_an_odd_shape_names_it(laboratory) -> None:
    sizes = " && ".join(
        f"n != {shape.symbols['n']}"
        for shape in (*laboratory.experiment.shapes.tune, *laboratory.experiment.shapes.held_out)
    )
    body = f"if ({sizes}) *(volatile global int *)(ulong)n = 1;"
    candidate = laboratory.candidate(GOOD.replace("{ int", "{ " + body + " int"), trial=9)
    ((_, reason),) = laboratory.confirmed(candidate).failed
    assert re.search(r"killed by SIGSEGV.* \(on the odd shape n=\d+\)$", reason.detail), reason


def test_an_odd_shape_that_takes_the_baseline_too_long_is_not_asked(tmp_path) -> None:
    (tmp_path / "spin.cl").write_text(
        """kernel void spin(global float *out, global const float *x, int n) {
    int i = get_global_id(0);
    if (i >= n) return;
    volatile int left = i == 0 && n == 8996 ? 1600000000 : 0;
    while (left > 0) --left;
    out[i] = 2.0f * x[i];
}
"""
    )
    (tmp_path / "experiment.yaml").write_text(
        """version: 1
name: spin
kernel:
  {language: opencl, source: spin.cl, entry: spin, launch: {grid: ["ceil_div(n, 64)"], block: [64]}}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [n]}
  - {name: x, kind: in, dtype: float32, shape: [n]}
  - {name: n, kind: scalar, dtype: int32, value: n}
shapes: {domain: ["1 <= n", "n <= 8996"], tune: [{n: 1024}]}
measure: {warmup: 1, repeats: 3, cache: hot}
"""
    )
    laboratory = Laboratory(tmp_path / "experiment.yaml", deadlines=Deadlines())
    try:
        quick = (tmp_path / "spin.cl").read_text().replace("1600000000", "0")
        confirmed = laboratory.confirmed(laboratory.candidate(quick))
    finally:
        laboratory.close()
    assert not confirmed.failed
    (note,) = (note for note in note_texts(confirmed.notes) if "n=8996" in note)
    assert note.startswith("not checked on n=8996, ")
    assert "the baseline takes" in note
    assert "too long to check" in note
    assert "fails" not in note


def test_one_note_names_all_inputs_that_the_reference_contradicts(tmp_path) -> None:
    spec = changed(
        tmp_path,
        affine={"fma(2.0f, x[i], y[i])": "fabs(x[i]) < 90 ? fma(2.0f, x[i], y[i]) : 0.0f"},
    )
    laboratory = Laboratory(spec)
    try:
        confirmed = laboratory.confirmed(laboratory.candidate(GOOD))
    finally:
        laboratory.close()
    (found,) = [text for text in note_texts(confirmed.notes) if text.startswith("not checked")]
    assert "large magnitudes; " in found
    assert ", first n=" in found
    assert "the baseline disagrees with its reference" in found
    assert "give a `range`" in found


@pytest.mark.parametrize(
    ("kernel", "grid", "reference", "said"),
    [
        ("if (i < n) out[i] = 2 * x[i]", "max(n // 64, 1)", "", "the baseline never writes"),
        (
            "if (i < n) out[i] = 2 * x[i]; if (i == 0 && n % 64) out[n] = 1",
            "ceil_div(n, 64)",
            "",
            "the baseline itself fails: writes a byte behind the end of out",
        ),
        (
            "if (i < n) out[i] = (2 + (n % 64 > 0)) * x[i]",
            "ceil_div(n, 64)",
            "2 * x",
            "the baseline disagrees with its reference: out[",
        ),
        ("if (i < n) out[i] = 2 * x[i]", "ceil_div(n, 64)", "2 * x if n % 64 == 0 else 1 / 0", ""),
    ],
)
def test_a_baseline_that_is_wrong_on_an_odd_shape_is_said_to_be(
    tmp_path, kernel: str, grid: str, reference: str, said: str
) -> None:
    head = "kernel void twice(global float *out, global const float *x, int n)"
    source = f"{head} {{ int i = get_global_id(0); {kernel}; }}"
    (tmp_path / "twice.cl").write_text(source)
    (tmp_path / "reference.py").write_text(
        f"def twice(x, n, **_):\n    return {{'out': {reference}}}\n"
    )
    (tmp_path / "experiment.yaml").write_text(
        f"""version: 1
name: twice
kernel:
  {{language: opencl, source: twice.cl, entry: twice, launch: {{grid: ["{grid}"], block: [64]}}}}
arguments:
  - {{name: out, kind: out, dtype: float32, shape: [n]}}
  - {{name: x, kind: in, dtype: float32, shape: [n]}}
  - {{name: n, kind: scalar, dtype: int32, value: n}}
shapes: {{domain: ["1 <= n", "n <= 9000"], tune: [{{n: 1024}}]}}
{"reference: reference.py:twice" if reference else ""}
measure: {{warmup: 1, repeats: 3, cache: hot}}
"""
    )
    laboratory = Laboratory(tmp_path / "experiment.yaml")
    try:
        confirmed = laboratory.confirmed(laboratory.candidate(source))
    finally:
        laboratory.close()
    notes = note_texts(confirmed.notes)
    wrong = [note for note in notes if note.startswith("your kernel is wrong at ")]
    assert len(wrong) == bool(said), notes
    pattern = rf"at \d+ shapes inside shapes.domain, first n=\d+: {re.escape(said)}.*shapes.domain$"
    assert all(re.search(pattern, note) for note in wrong), wrong
    assert any(note.startswith("not checked on ") for note in notes) != bool(said)
