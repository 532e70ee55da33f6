"""The Python API: what it returns is what the commands print, inside an event loop too."""

import asyncio
import json
import os
import signal
import sys
from itertools import pairwise

import numpy as np
import pytest

from cluster.commands.results import is_over
from kernelwright import Result, ShapeSpeedup, Speedup, load, tune
from tests.cluster.kernels import KERNEL, SPEC, kernelwright, write_experiment
from tuner.errors import EnvironmentProblem, NothingValid, SpecError


@pytest.fixture(scope="module")
def loaded(finished_run):
    return load(finished_run[0])


def test_a_loaded_result_has_the_figures_of_the_report(loaded):
    told = json.loads(kernelwright("report", loaded.path, "--json").stdout)
    assert loaded.outcome == told["outcome"]
    assert loaded.best == told["general"]["configuration"]
    assert loaded.speedup.value == told["speedup"]
    assert loaded.speedup.verdict == told["verdict"]
    assert [(one.shape, one.held_out) for one in loaded.speedups] == [
        ({"n": 1000}, False),
        ({"n": 4096}, False),
        ({"n": 777}, True),
    ]
    for one, shape, cell in zip(
        loaded.speedups, told["shapes"], told["general"]["cells"], strict=True
    ):
        assert (one.baseline_ns, one.time_ns) == (shape["baseline_ns"], cell["time_ns"])
        low_high = (cell["comparison"]["low"], cell["comparison"]["high"])
        assert (one.speedup.low, one.speedup.high) == low_high


def test_the_text_and_the_files_are_those_of_the_commands(loaded, tmp_path):
    assert kernelwright("report", loaded.path).stdout.startswith(loaded.report())
    written = loaded.export(tmp_path / "out")
    assert {path.name for path in written} > {"scale.h", "export.json"}
    for path in written:
        assert path.read_bytes() == (loaded.path / "export" / path.name).read_bytes()


def test_the_kernel_of_a_result_runs(loaded):
    cl, arrays = (pytest.importorskip(name) for name in ("pyopencl", "pyopencl.array"))
    (device, *_) = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    queue = cl.CommandQueue(cl.Context([device]))
    x = arrays.arange(queue, 777, dtype="float32")
    out = arrays.zeros_like(x)
    kernel = loaded.kernel
    assert kernel.variant(out, x) in ("general", "baseline")
    kernel(out, x)
    assert (out.get() == 3 * x.get()).all()


def test_all_trials_are_exported_for_kernel_tuner(loaded, tmp_path):
    said = kernelwright("export", loaded.path, "--format", "t4", "-o", tmp_path / "t4.json")
    assert said.stdout == f"{tmp_path / 't4.json'}\n"
    told = json.loads((tmp_path / "t4.json").read_text())
    finished = (loaded.path / "results.jsonl").read_text().splitlines()
    assert len(told["results"]) == len(finished)


def test_a_data_frame_has_a_row_for_each_trial(loaded):
    pytest.importorskip("pandas")
    frame = loaded.to_dataframe()
    assert len(frame) == len((loaded.path / "results.jsonl").read_text().splitlines())
    assert set(frame["ITEMS"]) == {1, 2, 4}


def test_a_data_frame_without_pandas_names_what_to_install(loaded, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EnvironmentProblem, match="pip install pandas"):
        loaded.to_dataframe()


def test_the_table_of_a_notebook_is_escaped(tmp_path):
    speedup = Speedup(1.5, 1.4, 1.6, "faster")
    one = ShapeSpeedup({"T": "<b>"}, True, {"X": "<i>"}, 3000.0, None, speedup)
    shown = Result(tmp_path, "improved", speedup, {"X": "<i>"}, (one,))._repr_html_()
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "<td>T=&lt;b&gt; (held out)</td><td>3 µs</td><td>-</td>" in shown
    assert "1.500× [1.400, 1.600] faster" in shown


def test_a_printed_result_is_a_table_and_its_name_one_line(loaded):
    lines = str(loaded).splitlines()
    caption = f"{loaded.outcome}: {loaded.speedup} with ITEMS={loaded.best['ITEMS']} "
    assert lines[0].startswith(caption)
    assert lines[-5].split() == ["shape", "baseline", "time", "speedup"]
    assert [line.split()[0] for line in lines[-4:]] == ["n=1000", "n=4096", "n=777", "run:"]
    assert max(map(len, lines[:-1])) <= 80
    assert repr(loaded).startswith(f"<Result {caption}")
    nothing = Result(loaded.path, "nothing_valid", None, None, ())
    assert repr(nothing) == f"<Result nothing_valid: no configuration; {loaded.path}>"


def test_tuning_works_inside_an_event_loop(tmp_path):
    metrics = "metrics: {GB/s: 8 * n / seconds / 1e9}\n"
    spec = write_experiment(tmp_path / "spec", spec=SPEC + metrics)
    events = []

    async def notebook():
        return tune(spec, trials=1, run_dir=tmp_path / "run", on_event=events.append)

    result = asyncio.run(notebook())
    assert result.path == tmp_path / "run"
    assert result == load(tmp_path / "run")
    assert result.speedup.verdict != "unconfirmed"
    for one in result.speedups:
        baseline, tuned = one.metrics["GB/s"]
        assert baseline == pytest.approx(8 * one.shape["n"] / one.baseline_ns)
        assert tuned == pytest.approx(8 * one.shape["n"] / one.time_ns)
    assert "<th>GB/s</th>" in result._repr_html_()
    lines = [str(event) for event in events]
    assert lines[-1].startswith("finished: 1 trial,")
    assert all(one != after for one, after in pairwise(lines))
    assert (result.path / "report.html").is_file()


def test_an_exception_of_the_callback_ends_the_run_and_can_be_resumed(tmp_path):
    spec = write_experiment(tmp_path / "spec")

    def fail(_event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(spec, run_dir=tmp_path / "run", on_event=fail)
    assert load(tmp_path / "run").outcome == "unfinished"


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured_and_says_how_to_continue(tmp_path):
    spec = write_experiment(tmp_path / "spec")

    sent = []

    def interrupt(event):
        if "; best" in str(event) and not sent:
            sent.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        tune(spec, run_dir=tmp_path / "run", on_event=interrupt)
    assert f"kernelwright resume {tmp_path / 'run'}" in caught.value.__notes__[0]
    assert not is_over(tmp_path / "run")
    assert load(tmp_path / "run").best is not None


@pytest.mark.slow
def test_a_baseline_that_is_wrong_is_an_error(tmp_path):
    spec = write_experiment(tmp_path / "spec", kernel=KERNEL.replace("3.0f", "2.0f"))
    with pytest.raises(NothingValid, match="the baseline cannot be used"):
        tune(spec, run_dir=tmp_path / "run")
    assert load(tmp_path / "run").outcome == "nothing_valid"


def test_errors_say_where_and_what_to_do(tmp_path):
    spec = write_experiment(tmp_path / "spec", spec=SPEC)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").touch()
    cases = [
        (lambda: tune(tmp_path / "none.yaml"), r"no such file: .*none.yaml; bundled experiments"),
        (lambda: tune(spec, fleet="grid"), "fleet='grid': write 'local' or 'ray'"),
        (lambda: tune(spec, trials=0), "trials=0: a number from 1 to"),
        (lambda: tune(spec, trials="5"), "trials='5': a number from 1 to"),
        (lambda: tune(spec, seconds="5"), "seconds='5': a time above 0"),
        (lambda: tune(spec, seconds=float("nan")), "seconds=nan: a time above 0"),
        (lambda: tune(spec, seconds=float("inf")), "seconds=inf: .* at most 1000000000"),
        (lambda: tune(spec, run_dir=tmp_path / "used"), "used is there already .*move it away"),
        (lambda: load(tmp_path / "gone"), "gone is not a run directory: name the folder that"),
        (lambda: load(tmp_path / "used"), "used is not a run directory: name the folder that"),
    ]
    for call, message in cases:
        with pytest.raises((SpecError, EnvironmentProblem), match=message):
            call()


def test_a_run_that_is_refused_for_too_few_seconds_leaves_no_directory(tmp_path):
    spec = write_experiment(tmp_path / "spec")
    with pytest.raises(SpecError, match=r"begin a run with --seconds \d+ or more"):
        tune(spec, trials=np.int64(5), seconds=np.float32(0.001), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
