"""What is written to the terminal: nothing from outside can move its cursor or hide text."""

import io
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from cluster.cli.error_exit import exit_with_message, open_standard_streams
from cluster.jobs.job_client import JobEnd
from cluster.runs.resuming import interrupt_note
from tests.cluster.kernels import ROOT
from tuner.errors import EnvironmentProblem, SpecError


def test_control_characters_are_escaped_wherever_they_come_from(monkeypatch):
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8") for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    open_standard_streams()
    told = "log\0of\x1b]0;t\x07 a\rcompiler\x9b31m, \u202etfel\u2066 \ufeff\n\t9.8× ≥ µs 名"
    typer.echo(told)
    typer.echo(told, err=True)
    print(told)
    first, second = (
        r"log\x00of\x1b]0;t\x07 a\rcompiler\x9b31m, \u202etfel\u2066 \ufeff",
        "9.8× ≥ µs 名",
    )
    escaped = f"{first}\n\t{second}\n"
    assert streams["stdout"].buffer.getvalue().decode() == escaped
    sys.stdout.flush()
    assert streams["stdout"].buffer.getvalue().decode() == 2 * escaped
    assert streams["stderr"].buffer.getvalue().decode() == escaped


def test_bytes_are_written_as_they_are(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    open_standard_streams()
    typer.echo(b"a diff\r\n", nl=False)
    assert stream.buffer.getvalue() == b"a diff\r\n"


def test_a_python_without_the_dependencies_is_named_with_its_node_and_a_remedy(capsys):
    words = [sys.executable, "-S", "-m", "cluster", "--help"]  # -S: no site-packages
    bare = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    with pytest.raises(SystemExit) as ended, exit_with_message():
        raise ModuleNotFoundError("No module named 'typer'", name="typer")
    assert (bare.returncode, ended.value.code) == (3, 3)
    for told in (bare.stderr, capsys.readouterr().err):
        assert told.count("\n") == 1
        assert told.startswith(f"kernelwright: error: {sys.executable} (Python 3.")
        assert f"on node {platform.node()} cannot run Kernelwright: No module named 'typer'" in told
        assert told.endswith("activate the environment before `ray start`\n")


def test_a_node_without_any_python_is_named():
    with pytest.raises(EnvironmentProblem, match=r"node 10\.0\.0\.9 has no `python` on the PATH"):
        JobEnd(127, stopped=False, message="", node="10.0.0.9").check_began()
    for code in (None, 0, 3):
        JobEnd(code, stopped=False, message="", node="").check_began()


def test_a_job_that_ray_ended_says_how_to_continue_its_run():
    ended = JobEnd(None, stopped=False, message="low on memory", node="")
    with pytest.raises(EnvironmentProblem, match=r": low on memory; .* --resume RUN$"):
        ended.check_code("job", "http://head:8265")
    for code, stopped in ((0, False), (3, False), (None, True)):
        JobEnd(code, stopped=stopped, message="", node="").check_code("job", "http://head:8265")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_run_goes_on_says_how_to_continue_it(capsys, number):
    options = ["--device", "H200"]
    with (
        pytest.raises(SystemExit) as ended,
        exit_with_message(),
        interrupt_note(Path("runs/a"), options),
    ):
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == (
        "kernelwright: interrupted; everything measured is kept; continue with: "
        "kernelwright resume runs/a --device H200\n"
    )


def test_a_second_signal_kills_once_the_keys_are_deleted(tmp_path):
    program = (
        "import signal\n"
        "from cluster.cli.error_exit import exit_with_message\n"
        "from cluster.settings import Settings, environment_for_ray\n"
        "settings = Settings(ray_address=None, in_job=False)\n"
        "with exit_with_message(), environment_for_ray(settings) as keys:\n"
        "    print(keys.read_text(), flush=True)\n"
        "    try:\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "    finally:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={"TMPDIR": str(tmp_path), "A_KEY": "k"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGINT, '{"A_KEY": "k"}\n')
    assert done.stderr == "kernelwright: killed by a second signal\n"
    assert not list(tmp_path.rglob("*.scratch"))


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_fits_the_terminal_and_is_one_line_elsewhere(monkeypatch, terminal):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "80")
    long, code = f"spec.yaml:3:1: {'word ' * 40}", "  x[i]   =  0;"
    with pytest.raises(SystemExit), exit_with_message():
        raise SpecError(f"{long}\n{code}")
    first, *more, last = stream.getvalue().splitlines()
    assert first.startswith("kernelwright: error: spec.yaml:3:1: word")
    assert last == code
    assert all(line.startswith("  word") for line in more)
    assert (max(map(len, (first, *more))) <= 80) == bool(more) == terminal
