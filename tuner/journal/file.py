"""The journal file: one JSON line per entry, appended by one writer, the only truth about a run.

A line is ``{"sum": …, "at": …, "t": …, "kind": …, …}``: the checksum of all lines up to it, so that
none can go missing, move or change; when it was written (:class:`tuner.journal.facts.Entry`); and
the fact. Every line ends with a newline. A line without one was torn by a crash: it is dropped, and
no work followed from it, because entries are synced before the work that they announce is sent.
Anything else that does not add up is damage, which is reported by its line and never skipped.
"""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

from tuner.errors import EnvironmentProblem, JournalUnwritable
from tuner.files import first_problem
from tuner.journal.facts import Entry, Fact

VERSION = 3
HEADER = json.dumps({"journal": "kernelwright", "version": VERSION}).encode() + b"\n"

_HEADERS = re.compile(rb'\{"journal": "kernelwright", "version": ([0-9]{1,9})\}\n')
_LONGEST_HEADER = 64

_SUM = b'{"sum":"%08x",'
_SUM_LENGTH = len(_SUM % 0)

_TIME = re.compile(rb'\{"at":([0-9]{1,12}\.[0-9]{6}),"t":([0-9]{1,10}\.[0-9]{6}),')

_YEAR_10000 = 253402300800.0
"""In Unix seconds: the first time that :class:`datetime.datetime` cannot hold."""


@cache
def _facts() -> TypeAdapter[Fact]:
    return TypeAdapter(Fact)


def _encode(entry: Entry, before: int) -> tuple[bytes, int]:
    """One entry as a line, and the checksum of all lines up to it, given that of those before."""
    time = b'{"at":%.6f,"t":%.6f,' % (entry.at, entry.t)
    text = time + _facts().dump_json(entry.fact)[1:]
    after = zlib.crc32(text, before)
    return _SUM % after + text[1:] + b"\n", after


def read_journal(path: Path) -> list[Entry]:
    """Every entry of a journal, in order, while it may still be growing.

    Raises:
        EnvironmentProblem: it cannot be read, is no journal, has another version, or is damaged.
    """
    return list(JournalDecoder(path).entries(after_header(_whole_lines(path))))


def _whole_lines(path: Path) -> bytes:
    if not path.is_file():
        raise _no_journal(path, "is not a regular file")
    try:
        with path.open("rb") as stream:
            start = stream.read(_LONGEST_HEADER)
            check_header(path, start)
            data = start + stream.read()
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}") from None
    return data[: data.rfind(b"\n") + 1]


def after_header(data: bytes) -> bytes:
    """The lines of a journal after its first one."""
    return data.partition(b"\n")[2]


def check_header(path: Path, start: bytes) -> None:
    """Check the first bytes of a journal, perhaps not all of its header.

    Raises:
        EnvironmentProblem: they begin no journal of this version.
    """
    if start[: len(HEADER)] != HEADER[: len(start)]:
        raise _foreign(path, start)


def _foreign(path: Path, start: bytes) -> EnvironmentProblem:
    """What is said of a file that begins in another way than a journal of this version."""
    if version := _HEADERS.match(start):
        return EnvironmentProblem(
            f"{path}:1: a journal of version {int(version[1])}, and this kernelwright reads "
            f"version {VERSION}: go on with the one that wrote it, or begin a new run"
        )
    return _no_journal(path, "does not begin as one")


def _no_journal(path: Path, what: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{path} is no journal (it {what}): something else was put in its place; restore it from "
        "a copy, or begin a new run"
    )


class JournalDecoder:
    """Decodes the lines of a journal as they come, and checks that each follows from those before.

    Attributes:
        checksum: Of all lines so far.
        line: The number of the last line so far, from 1, which is the header.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.checksum = 0
        self.line = 1

    def entries(self, data: bytes) -> Iterator[Entry]:
        """The entries of the next whole lines.

        Raises:
            EnvironmentProblem: a line does not follow from those before it, or does not decode.
        """
        for line in data.split(b"\n")[:-1]:
            self.line += 1
            text = b"{" + line[_SUM_LENGTH:]
            self.checksum = zlib.crc32(text, self.checksum)
            if line[:_SUM_LENGTH] != _SUM % self.checksum:
                raise self._damaged("it does not follow from the lines before it")
            yield self._entry(text)

    def _entry(self, text: bytes) -> Entry:
        time = _TIME.match(text)
        if time is None or float(time[1]) >= _YEAR_10000:
            raise self._damaged("it does not say when it was written")
        try:
            fact = _facts().validate_json(text)
        except ValidationError as error:
            raise self._damaged(first_problem(error)) from None
        return Entry(fact, at=float(time[1]), t=float(time[2]))

    def _damaged(self, what: str) -> EnvironmentProblem:
        return damaged(self._path, self.line, what)


def damaged(path: Path, number: int, what: str) -> EnvironmentProblem:
    """The error for a damaged line, which counts from 1."""
    return EnvironmentProblem(
        f"{path}:{number}: the journal is damaged here ({what}); restore the file from a copy, or "
        f"keep its first {number - 1} lines and move results.jsonl and status.json beside it away "
        "to go on from there"
    )


class Journal:
    """A journal opened by its one writer, which holds the run directory."""

    def __init__(self, path: Path, check: Callable[[], None] = lambda: None) -> None:
        """Open or begin a journal; a torn last line is cut off, :attr:`entries` are what it holds.

        :attr:`synced` is how many entries are on disk, safe from a crash of the machine. ``check``
        is called before each write, and raises if this process may not write any more.

        Raises:
            EnvironmentProblem: it cannot be read, or is damaged.
            JournalUnwritable: it cannot be written.
        """
        self.path = path
        self._check = check
        data = _whole_lines(path) if path.exists() else b""
        decoder = JournalDecoder(path)
        self.entries = list(decoder.entries(after_header(data)))
        self._checksum = decoder.checksum
        self._written, self.synced = len(self.entries), 0
        self._size = len(data)
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            raise JournalUnwritable(f"cannot write {path}: {error.strerror}") from None
        self._dirty = True  # an earlier writer may have died before it synced
        if not data:
            self._write(HEADER)
        self.sync()

    def append(self, *entries: Entry) -> None:
        """Hand entries to the operating system with one write, so that they survive this process.

        Raises:
            JournalUnwritable: they cannot be written, say to a full disk; nothing of them is kept.
        """
        self._check()
        lines, checksum = [], self._checksum
        for entry in entries:
            line, checksum = _encode(entry, checksum)
            lines.append(line)
        self._write(b"".join(lines))
        self._checksum = checksum
        self._written += len(entries)

    def sync(self) -> None:
        """Force all that was appended to the disk, so that it survives the machine."""
        if self._dirty:
            self._dirty, written = False, self._written  # what is appended meanwhile counts later
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise JournalUnwritable(f"cannot sync {self.path}: {error.strerror}") from None
            self.synced = written

    def _write(self, data: bytes) -> None:
        end = self._size
        try:
            while data:
                count = os.pwrite(self._descriptor, data, end)
                data, end = data[count:], end + count
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)  # half a line is no entry
            raise JournalUnwritable(f"cannot write {self.path}: {error.strerror}") from None
        self._size, self._dirty = end, True

    def close(self) -> None:
        """Sync and close; closing twice does nothing."""
        if self._descriptor >= 0:
            self.sync()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
