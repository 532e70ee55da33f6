"""The command line as a process: exit codes, where output goes, and what bad input is told."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from cluster.cli import main as cli
from cluster.runs.run_layout import STOP_FILE
from cluster.settings import Settings
from kernelwright import __version__
from tests.cluster.kernels import (
    FAMILY,
    KERNEL,
    REFERENCE,
    ROOT,
    SPEC,
    TEMPLATE,
    command,
    kernelwright,
    write_experiment,
)
from tuner.drafts.draft_spec import unread_guesses
from tuner.errors import EnvironmentProblem
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

HEAVY = ("numpy", "pydantic", "yaml", "ray", "rich")


def last_line(result):
    return result.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("module", ["kernelwright", "cluster"])
def test_the_command_runs_as_a_module(module):
    words = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"kernelwright {__version__}\n"


def test_help_imports_nothing_heavy():
    program = (
        "import sys; sys.argv = ['kernelwright', '--help']\n"
        "from cluster.cli.main import main\n"
        "try: main()\n"
        f"finally: assert not set({HEAVY!r}) & sys.modules.keys()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "resume" in result.stdout


def test_the_version_is_printed_without_a_command():
    assert kernelwright("--version").stdout == f"kernelwright {__version__}\n"


def test_a_shell_can_complete_commands():
    program = "import sys; sys.argv = ['kernelwright']; from cluster.cli.main import main; main()"
    asked = {"_KERNELWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "kernelwright re"}
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | asked | {"COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["resume", "report", "relay"]


@pytest.mark.parametrize(
    ("unread", "words"), [("stdout", ["--version"]), ("stderr", ["validate", "nowhere"])]
)
def test_where_nobody_reads_it_ends_without_a_word(unread, words):
    read, write = os.pipe()
    os.close(read)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, unread: write}
    process = subprocess.Popen(command(*words), cwd=ROOT, **streams)
    os.close(write)
    said = process.communicate()
    assert (process.returncode, b"".join(filter(None, said))) == (128 + signal.SIGPIPE, b"")


def test_a_run_ends_with_a_result_an_export_and_one_last_line(finished_run):
    run, result = finished_run
    assert last_line(result).startswith("kernelwright: outcome=")
    assert last_line(result).endswith(f"run={run}")
    assert re.search(r"search: \d+/6 trials", result.stderr)
    assert result.stderr.count(f"run directory {run}\n") == 1
    assert list((run / "export").iterdir())
    assert (run / "report.html").read_text().startswith("<!doctype html>")

    report = kernelwright("report", run, "--json")
    assert report.returncode == 0, report.stderr
    found = json.loads(report.stdout)
    assert found["outcome"] in ("improved", "no_gain")
    status = kernelwright("status", run, "--json")
    told = json.loads(status.stdout)
    assert told["run"] == run.name
    assert told["state"] == "finished"
    assert told["speedup_there"] > 0
    assert told["best_of_search"].startswith("ITEMS=")
    assert told["outcome"] == found["outcome"]
    assert f"{found['speedup']:.3f}×" in told["result"]
    words = kernelwright("status", run).stdout
    assert told["result"] in words
    assert "best of search" not in words, "beside what is confirmed"

    again = kernelwright("resume", run, "--fleet", "local", "--seconds", 60)
    assert again.returncode == 0
    assert "has finished, so that --seconds has no effect" in again.stderr
    assert last_line(again) == last_line(result)

    too_late = kernelwright("stop", run)
    assert too_late.returncode == 0
    assert "has finished" in too_late.stdout
    assert not (run / STOP_FILE).exists()

    shown = kernelwright("show", run, 0, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["plan"]["builds"][0]["usage"]["scale"]
    nothing = kernelwright("show", run, 99)
    assert nothing.returncode == 2
    assert "has no trial 99: trials 0 to" in nothing.stderr


def test_a_spec_whose_guesses_were_not_read_is_right_with_a_reservation(tmp_path):
    spec = write_experiment(tmp_path).with_name("guessed.yaml")
    written = kernelwright("init", tmp_path / "scale.cl", "-o", spec)
    assert written.returncode == 0, written.stderr
    result = kernelwright("validate", spec)
    assert result.returncode == 0, result.stderr
    lines = spec.read_text().splitlines()
    marked = unread_guesses(spec.read_text())
    assert len(marked) > 1
    last = result.stdout.splitlines()[-1]
    need = f"{len(marked)} guesses need review: lines {', '.join(map(str, marked))}"
    assert last.endswith(f": no errors found, but {need}")
    spec.write_text("\n".join(line.partition("# guess")[0] for line in lines))
    said = kernelwright("validate", spec, "--fast").stdout
    assert said.endswith("no errors found (nothing was compiled or run)\n")


def test_a_trial_is_reproduced_alone(tmp_path):
    spec = write_experiment(tmp_path)
    settings = ("--set", "ITEMS=2", "--set", "BLOCK=16", "--shape", "n=99")
    result = kernelwright("trial", spec, *settings, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["configuration"] == {"ITEMS": 2, "BLOCK": 16}
    assert [cell["kind"] for cell in report["cells"]] == ["full"]


def test_a_rejected_trial_names_the_shape_and_what_to_do(tmp_path):
    spec = write_experiment(tmp_path, family=FAMILY.replace("3.0f", "2.0f"))
    settings = ("--set", "ITEMS=2", "--set", "BLOCK=16", "--shape", "n=99")
    result = kernelwright("trial", spec, *settings)
    assert result.returncode == 4
    assert "ITEMS=2 BLOCK=16 was rejected at n=99: verify: wrong_result: out[" in result.stderr
    assert "hint: check the template at that shape" in " ".join(result.stderr.split())


def test_what_a_trial_says_of_its_spread_is_of_one_process(tmp_path):
    settings = ("--set", "ITEMS=2", "--set", "BLOCK=16", "--shape", "n=99")
    said = kernelwright("trial", write_experiment(tmp_path), *settings).stdout
    assert "±" not in said
    assert re.search(r"\d× \(median of \d+ timings in one process, half of them within \d", said)


BAD = [
    (("run", "no/such.yaml"), 2, ["no such file: no/such.yaml"]),
    (("run", "silu_and_mull"), 2, ["did you mean 'silu_and_mul'?"]),
    (("status", "/"), 2, ["/ is not a run directory"]),
    (("export", "{here}/none"), 2, ["none is not a run directory"]),
    (("frobnicate",), 2, ["No such command"]),
    (("run", "{spec}", "--fleet", "local", "--device", "tpu"), 3, ["no opencl device fits 'tpu'"]),
    (("run", "{spec}", "--fleet", "local", "--run-dir", "/dev/null/x"), 3, ["/dev/null/x"]),
    (("run", "{spec}", "--fleet", "local", "--run-dir", "{here}"), 3, ["is there already"]),
    (
        ("trial", "{spec}", "--set", "ITEMS=3", "--set", "BLOCK=16"),
        2,
        ["one of its values: 1, 2, 4"],
    ),
    (("trial", "{spec}", "--set", "ITEMS=1"), 2, ["BLOCK=… is missing"]),
    (("trial", "{spec}", "--set", "ITEMS=1", "--set", "BLOCK=16", "--shape", "m=1"), 2, ["n=…"]),
    (("trial", "{spec}", "--set", "ITEMS=1", "--set", "ITEMS=2"), 2, ["ITEMS is already 1"]),
    (
        ("trial", "{spec}", "--set", "ITEMS=1", "--set", "BLOCK=16", "--shape", "n=" + "9" * 5000),
        2,
        ["n=999", "not an integer from 1"],
    ),
    (("validate", "x" * 5000), 2, ["no such file"]),
    (("stop", "{run}"), 3, ["is not running"]),
    (("status", "x" * 300), 3, ["File name too long", "check this path"]),
    (
        ("init", "{here}/scale.cl", "-o", "{spec}"),
        2,
        ["spec.yaml exists already", "name another file with --output"],
    ),
    (("validate", "{spec}", "--target", "sm_90"), 2, ["--target sm_90 is for CUDA"]),
]


@pytest.mark.parametrize(("arguments", "code", "words"), BAD)
def test_bad_input_is_told_in_one_message(tmp_path, arguments, code, words):
    spec = write_experiment(tmp_path)
    run = tmp_path / "without a lock"
    RunDirectory.create(run, load_experiment(spec), "").close()
    (run / "lock").unlink()
    filled = [part.format(spec=spec, here=tmp_path, run=run) for part in arguments]
    result = kernelwright(*filled)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert all(word in result.stderr for word in words), result.stderr


SCARCE = [
    ("exec {command} --version > /dev/full", "No space left on device"),
    ("ulimit -n 8; exec {command} doctor", "Too many open files"),
    ('cd "$(mktemp -d)"; rmdir "$PWD"; exec {command} doctor', "current folder was deleted"),
]


@pytest.mark.parametrize(("line", "words"), SCARCE)
def test_what_the_machine_has_not_is_no_bug(line, words):
    line = line.format(command=" ".join(command()))
    result = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3, result.stderr
    assert words in result.stderr
    assert "bug" not in result.stderr


BROKEN = [
    ({"kernel": KERNEL.replace("3.0f", "3.0f +* 2")}, 4, ["scale.cl", ":3"]),
    ({"reference": REFERENCE.replace("3.0", "4.0")}, 4, ["out"]),
    (
        {"spec": SPEC.replace("[16]}", "[16]}  # guess").replace("[n]}", "[n - 8]}  # guess", 1)},
        4,
        [
            "error: the baseline cannot be used: n=1000: the baseline itself fails: writes ",
            " behind the end of out",
            "; 2 guesses need review: lines 7, 9\n",
        ],
    ),
    ({"family": FAMILY.replace("3.0f", "5.0f")}, 4, ["6 of 6 rejected", "wrong"]),
    ({"family": FAMILY.replace("3.0f", "(oops)")}, 4, ["6 of 6 rejected", "compile"]),
    ({"template": TEMPLATE + "constraints: [ITEMS * BLOCK > 1000000]\n"}, 2, ["ITEMS * BLOCK"]),
    ({"spec": SPEC.replace("n: 1000", "n: -5")}, 2, ["spec.yaml:"]),
    ({"spec": SPEC.replace("trials: 6", "trails: 6")}, 2, ["spec.yaml:", "trials"]),
    ({"family": "#define BLOCK 64\n" + FAMILY}, 4, ["source rules", "overrides a parameter"]),
]


@pytest.mark.parametrize(("changed", "code", "words"), BROKEN)
def test_a_broken_experiment_ends_with_its_reason(tmp_path, changed, code, words):
    spec = write_experiment(tmp_path / "spec", **changed)
    result = kernelwright("run", spec, "--fleet", "local", "--run-dir", tmp_path / "run")
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    told = result.stdout + result.stderr
    assert all(word in told for word in words), told
    assert code == 4 or "run directory" not in told, "a run that is refused leaves none"


def test_without_a_template_one_is_made_from_the_kernel(tmp_path):
    spec = write_experiment(tmp_path / "spec", spec=SPEC.replace("template: template.yaml\n", ""))
    options = ("--fleet", "local", "--run-dir", tmp_path / "run", "--trials", 2)
    result = kernelwright("run", spec, *options)
    assert result.returncode == 0, result.stderr
    assert "deriving one from the kernel" in result.stderr
    assert last_line(result).startswith("kernelwright: outcome=")


HAZARDS = """
#if MODE == MODE_crash
  *(volatile global int *)8 = 1;
#elif MODE == MODE_hang
  for (volatile int waiting = 1; waiting;);
#endif
"""


@pytest.mark.slow
def test_a_crash_and_an_endless_loop_cost_a_trial_each_and_are_named(tmp_path):
    head, rest = FAMILY.split("\n", 1)
    spec = write_experiment(
        tmp_path / "spec",
        family=head + HAZARDS + rest,
        template=TEMPLATE.replace("ITEMS: [1, 2, 4]", "ITEMS: [1]").replace(
            "[16, 64]", "[64], MODE: [good, crash, hang]"
        ),
    )
    result = kernelwright("run", spec, "--fleet", "local", "--run-dir", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "MODE=good" in result.stdout
    assert "MODE=crash) crashed at n=1000: killed by SIGSEGV" in result.stdout
    assert "MODE=hang) hung at n=1000" in result.stdout


def test_a_cluster_that_does_not_answer_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    result = kernelwright("run", write_experiment(tmp_path))
    assert result.returncode == 3
    assert "cannot use 127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.stderr
    assert "\nray          cannot use 127.0.0.1:1: " in kernelwright("doctor").stdout


@pytest.mark.parametrize(
    ("error", "cause", "words"),
    [
        (ConnectionError("No Ray at x"), "ray.exceptions.AuthenticationError: …", "=token, and"),
        (ValueError("An address.\n  To mend it:\n  1. Do"), "", "An address. To mend it: 1. Do ("),
    ],
)
def test_why_a_cluster_cannot_be_joined_is_said_in_full(monkeypatch, error, cause, words):
    from cluster.jobs import ray_driver

    def init(**_):
        raise error from RuntimeError(cause)

    monkeypatch.setattr(ray_driver.ray, "init", init)
    monkeypatch.setattr(ray_driver.ray, "is_initialized", lambda: False)
    settings = Settings(ray_address="x", in_job=False)
    with pytest.raises(EnvironmentProblem) as refused, ray_driver.connected(settings):
        pass
    assert words in str(refused.value)


def test_a_run_directory_in_use_is_named(tmp_path):
    spec = write_experiment(tmp_path / "spec")
    held = RunDirectory.create(tmp_path / "run", load_experiment(spec), "")
    try:
        result = kernelwright("resume", tmp_path / "run", "--fleet", "local")
    finally:
        held.close()
    assert result.returncode == 3
    assert f"is in use by process {os.getpid()}" in result.stderr


def test_a_bug_is_one_line_and_a_file(monkeypatch, capsys):
    def broken() -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("kernelwright: bug: ZeroDivisionError: surprise (traceback in ")


@pytest.fixture
def begin():
    """Starts a long run as a process group of its own, and waits until trials came in."""
    started = []

    def start(run, *words, finished=1):
        process = subprocess.Popen(
            command(*words),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        until = time.monotonic() + 120
        while outcomes(run) < finished:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def long_run(tmp_path):
    """The words that begin a run which ends only if it is made to."""
    text = SPEC.replace("trials: 6, seconds: 60", "trials: 5000, seconds: 600")
    values = str(list(range(1, 100)))
    wide = TEMPLATE.replace("[1, 2, 4]", values).replace("[16, 64]", "[8, 16, 32, 64]")
    spec = write_experiment(tmp_path / "spec", spec=text, template=wide)
    return ("run", spec, "--fleet", "local", "--run-dir", tmp_path / "run")


def outcomes(run):
    """How many trials have finished so far."""
    journal = run / "journal.jsonl"
    return journal.read_bytes().count(b'"trial.finished"') if journal.exists() else 0


def finished(run):
    return [fact for fact in RunView.open(run).facts() if fact.kind == "trial.finished"]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_interrupted_and_stopped_it_loses_and_repeats_no_trial(
    tmp_path, begin, long_run, number, code
):
    run = tmp_path / "run"
    process = begin(run, *long_run)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert f"kernelwright resume {run}\n" in errors
    assert "Traceback" not in errors

    first = finished(run)
    cut_short = last_line(kernelwright("report", run))
    assert re.match(r"kernelwright: outcome=unfinished unconfirmed=\d", cut_short)
    assert "speedup=" not in cut_short

    process = begin(run, "resume", run, finished=len(first) + 1)
    assert kernelwright("stop", run).returncode == 0
    result, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "starting Ray" not in errors
    left = f"{396 - len(first)} of 396 configurations"
    # On a machine that was busy while the baseline was timed, not all are promised.
    assert re.search(f"baseline: .*; then ({left}|searching and confirming within)", errors)
    assert re.match("kernelwright: outcome=.* speedup=[0-9]", result.strip().splitlines()[-1])
    assert [f.reason for f in RunView.open(run).facts() if f.kind == "search.ended"] == ["stopped"]
    second = finished(run)
    assert second[: len(first)] == first
    assert len({fact.trial for fact in second}) == len(second)
    environment = json.loads((run / "environment" / "000.json").read_text())
    assert set(environment["compilers"]) <= {"pyopencl", "pocl-binary-distribution"}
    too_late = kernelwright("stop", run)
    assert too_late.returncode == 0
    assert "has finished" in too_late.stdout


@pytest.mark.slow
def test_a_killed_run_is_taken_over_and_loses_no_trial(tmp_path, begin, long_run):
    run = tmp_path / "run"
    process = begin(run, *long_run)
    process.kill()
    process.communicate()
    first = finished(run)
    process = begin(run, "resume", run, finished=len(first) + 1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert re.search(r"taking the run directory over: process \d+ on .* ended without", errors)
    second = finished(run)
    assert second[: len(first)] == first
    assert len({fact.trial for fact in second}) == len(second)


def test_an_option_beats_the_fleet_that_a_run_was_begun_with(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    spec = load_experiment(write_experiment(tmp_path / "spec"))
    RunDirectory.create(tmp_path / "run", spec, "", fleet="local").close()
    result = kernelwright("resume", tmp_path / "run", "--fleet", "ray")
    assert result.returncode == 3
    assert "cannot use 127.0.0.1:1" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"], ids=["stderr", "both"])
def test_with_closed_streams_it_ends_as_it_would(tmp_path, closed):
    run = tmp_path / "run"
    words = shlex.join(map(str, command("resume", run)))
    bad = subprocess.run(["/bin/sh", "-c", f"{words} {closed}"], cwd=ROOT, check=False)
    assert bad.returncode == 2
    spec = write_experiment(tmp_path / "spec")
    options = ("--fleet", "local", "--run-dir", run, "--trials", 1)
    words = shlex.join(map(str, command("run", spec, *options)))
    good = subprocess.run(["/bin/sh", "-c", f"{words} {closed}"], cwd=ROOT, check=False)
    assert good.returncode == 0
    assert any(fact.kind == "run.finished" for fact in RunView.open(run).facts())


@pytest.mark.slow
def test_stopped_before_anything_was_measured_it_goes_on_later(tmp_path, begin, long_run):
    run = tmp_path / "run"
    process = begin(run, *long_run, finished=0)
    until = time.monotonic() + 120
    while not (run / "journal.jsonl").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    (run / STOP_FILE).touch()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "stopped before it could confirm; everything measured is kept; continue with: " in errors
    assert not any(fact.kind == "search.ended" for fact in RunView.open(run).facts())
