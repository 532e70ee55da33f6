"""How a command ends that does not end well: one message, and the exit code of its kind.

That goes for SIGINT and SIGTERM too, unless a command answers them itself.

Knows no command. Imports nothing heavy, like the command line.
"""

import errno
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from tuner.errors import EnvironmentProblem, KernelwrightError

_EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""What the machine may run out of at any call: the reason is never ours."""


class _Interrupted(SystemExit):
    """A signal asked for an end; passes through what looks after failures."""


def open_standard_streams() -> None:
    """Let what a closed stdin, stdout or stderr would hold go nowhere.

    Else the next file that is opened would be in its place, for every child to write to.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


@contextmanager
def clear_ending() -> Iterator[None]:
    """Turn any failure inside into one message on stderr and an exit code.

    Where nobody reads what is printed (``kernelwright report RUN | head -1``) there is no message,
    and the exit code is that of other programs.
    """
    try:
        with _message(), _signals():
            yield
    except (BrokenPipeError, SystemExit) as ended:
        # Typer turns a broken pipe into an exit with status 1, whichever pipe it was.
        causes = [e for e in (ended, ended.__context__) if isinstance(e, BrokenPipeError)]
        if not causes:
            raise
        unread = [descriptor for descriptor in (1, 2) if _is_unread(descriptor)]
        if not unread:
            _end_with_bug(causes[0])
        # What is buffered must not fail once more when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in unread:
            os.dup2(nowhere, descriptor)
        sys.exit(128 + signal.SIGPIPE)


@contextmanager
def _signals() -> Iterator[None]:
    """Leave by an exception, so that children and scratch folders go; a second signal kills."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def leave(number: int, _: FrameType | None) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        raise _Interrupted(128 + number)

    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _message() -> Iterator[None]:
    try:
        yield
    except _Interrupted:
        typer.echo("kernelwright: interrupted", err=True)
        raise
    except KernelwrightError as error:
        typer.echo(f"kernelwright: error: {error}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            typer.echo(f"kernelwright: error: {error}: free some, or allow more", err=True)
            sys.exit(EnvironmentProblem.exit_code)
        _end_with_bug(error)


def _end_with_bug(error: Exception) -> NoReturn:
    handle, path = tempfile.mkstemp(prefix="kernelwright-traceback-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    words = str(error).partition("\n")[0]
    typer.echo(
        f"kernelwright: bug: {type(error).__name__}: {words} (traceback in {path})", err=True
    )
    sys.exit(1)


def _is_unread(descriptor: int) -> bool:
    """Whether it is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
