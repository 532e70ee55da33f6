"""Turns a command's failure into one message and an exit code.

SIGINT and SIGTERM too, unless the command handles them. Imports nothing heavy, like the command
line.
"""

import errno
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO, cast

import typer

from cluster.jobs.package_check import OURS
from cluster.settings import remove_private_files
from cluster.unfit_python import unfit_words
from tuner.errors import EnvironmentProblem, KernelwrightError
from tuner.printable import printable
from tuner.report.wrapping import fitting

_EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""Errors of an exhausted machine, which any call may meet: no bug of ours."""

_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EIO, errno.ESTALE}
)
"""Errors of a path that any look at it may meet: no bug of ours."""


_OUR_PACKAGES = frozenset(Path(file).stem for file in OURS)


class _Interrupted(SystemExit):
    """A signal arrived; no handler of failures catches it."""


def open_standard_streams() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr; escape what is hidden in text.

    Otherwise the next file opened would take its descriptor, and every child would write to it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stdout = cast("TextIO", _Printable(sys.stdout))
    sys.stderr = cast("TextIO", _Printable(sys.stderr))


class _Printable:
    """A text stream that escapes control characters; bytes go to its ``buffer`` as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextmanager
def exit_with_message() -> Iterator[None]:
    """Turn any failure inside into one message on stderr and an exit code.

    A closed reader (``kernelwright report RUN | head -1``) ends with 141 and without a message.
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
        # Buffered output must not fail again when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in unread:
            os.dup2(nowhere, descriptor)
        sys.exit(128 + signal.SIGPIPE)


@contextmanager
def _signals() -> Iterator[None]:
    """Raise on a signal, so that children and scratch folders are removed; a second one kills.

    It kills at once, but for the files with keys, which are deleted first.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)

    def kill(number: int, _: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)
        with suppress(OSError):
            os.write(2, b"kernelwright: killed by a second signal\n")
        remove_private_files()
        signal.raise_signal(number)

    def leave(number: int, _: FrameType | None) -> NoReturn:
        for each in numbers:
            signal.signal(each, kill)
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
    except _Interrupted as interrupted:
        words = ["kernelwright: interrupted", *getattr(interrupted, "__notes__", ())]
        typer.echo("; ".join(words), err=True)
        raise
    except KernelwrightError as error:
        _say(f"kernelwright: error: {error}")
        sys.exit(error.exit_code)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in _OUR_PACKAGES:
            _end_with_bug(error)
        _say(f"kernelwright: error: {unfit_words(str(error))}")
        sys.exit(EnvironmentProblem.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and (remedy := _remedy(error)):
            _say(f"kernelwright: error: {error}: {remedy}")
            sys.exit(EnvironmentProblem.exit_code)
        _end_with_bug(error)


def _say(words: str) -> None:
    typer.echo(fitting(words, sys.stderr), err=True)


def _remedy(error: OSError) -> str:
    """What the user can do about an error of the machine or of a path; empty for a bug."""
    if error.errno in _EXHAUSTED:
        return "free resources or raise the limit"
    if error.errno in _REFUSED and error.filename is not None:
        return "check this path and its permissions"
    return ""


def _end_with_bug(error: Exception) -> NoReturn:
    handle, path = tempfile.mkstemp(prefix="kernelwright-traceback-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    words = str(error).partition("\n")[0]
    _say(f"kernelwright: bug: {type(error).__name__}: {words} (traceback in {path})")
    sys.exit(1)


def _is_unread(descriptor: int) -> bool:
    """Whether the descriptor is a pipe whose reader closed it."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
