"""What is written to the terminal: nothing from outside can move its cursor or hide text."""

import io
import sys

import pytest
import typer

from cluster.cli.error_exit import exit_with_message, open_standard_streams
from tuner.errors import SpecError


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
