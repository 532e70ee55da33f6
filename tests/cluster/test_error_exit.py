"""What is written to the terminal: nothing from outside can move its cursor or hide text."""

import io
import sys

import typer

from cluster.cli.error_exit import open_standard_streams


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
