"""The journal: facts as JSON lines, appended by one writer, the only truth about a run.

Every line ends with a newline, so a line without one was torn by a crash: it is dropped, and no act
followed from it, because facts are synced before the acts that they announce. Every line begins
with the checksum of all facts up to it, so that none can go missing, move or change in between.
Anything that does not add up is damage, which is named by its line and never skipped. Knows nothing
of sessions.
"""

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

from tuner.errors import EnvironmentProblem
from tuner.journal.facts import Fact, TrialFinished, TrialProposed

VERSION = 2
HEADER = json.dumps({"journal": "kernelwright", "version": VERSION}).encode() + b"\n"

_HEADERS = re.compile(rb'\{"journal": "kernelwright", "version": ([0-9]{1,9})\}\n')
_LONGEST_HEADER = 64

_SUM = b'{"sum":"%08x",'
_SUM_LENGTH = len(_SUM % 0)


@cache
def _facts() -> TypeAdapter[Fact]:
    return TypeAdapter(Fact)


def _encode(fact: Fact, before: int) -> tuple[bytes, int]:
    """One fact as a line, and the checksum of all facts up to it, given that of those before."""
    text = _facts().dump_json(fact)
    after = zlib.crc32(text, before)
    return _SUM % after + text[1:] + b"\n", after


def read_journal(path: Path) -> list[Fact]:
    """Every fact of a journal, in order, while it may still be growing.

    Raises:
        EnvironmentProblem: it cannot be read, is none or of another version, or is damaged.
    """
    return _decode(path, _whole_lines(path))[0]


def _whole_lines(path: Path) -> bytes:
    if not path.is_file():
        raise _no_journal(path, "is not a regular file")
    try:
        with path.open("rb") as stream:
            start = stream.read(_LONGEST_HEADER)
            if start[: len(HEADER)] != HEADER[: len(start)]:
                raise _foreign(path, start)
            data = start + stream.read()
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}") from None
    return data[: data.rfind(b"\n") + 1]


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


def _decode(path: Path, data: bytes) -> tuple[list[Fact], int]:
    """The facts of whole lines, and their checksum."""
    _, _, rest = data.partition(b"\n")
    texts, checksum = [], 0
    for number, line in enumerate(rest.split(b"\n")[:-1], start=2):
        texts.append(b"{" + line[_SUM_LENGTH:])
        checksum = zlib.crc32(texts[-1], checksum)
        if line[:_SUM_LENGTH] != _SUM % checksum:
            raise _damaged(path, number, "it does not follow from the lines before it")
    return list(_checked(path, texts)), checksum


def _checked(path: Path, texts: Iterable[bytes]) -> Iterator[Fact]:
    """Facts that decode and refer to nothing unheard of."""
    proposed = 0
    for number, text in enumerate(texts, start=2):
        try:
            fact = _facts().validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise _damaged(path, number, f"{where}: {first['msg']}".removeprefix(": ")) from None
        match fact:
            case TrialProposed(trial=trial):
                if trial != proposed:
                    raise _damaged(path, number, f"trial {trial} where {proposed} is due")
                proposed += 1
            case TrialFinished(trial=trial):
                if not 0 <= trial < proposed:
                    raise _damaged(path, number, f"trial {trial} was never proposed")
            case _:
                pass
        yield fact


def _damaged(path: Path, number: int, what: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{path}:{number}: the journal is damaged here ({what}); restore the file from a copy, or "
        f"keep its first {number - 1} lines to go on from there"
    )


class Journal:
    """A journal opened by its one writer, who holds the run directory's lock."""

    def __init__(self, path: Path) -> None:
        """Open or begin a journal; a torn last line is cut off, :attr:`facts` are what it holds.

        :attr:`synced` is how many facts no crash of the machine can take any more.

        Raises:
            EnvironmentProblem: it cannot be read or written, or is damaged.
        """
        self.path = path
        data = _whole_lines(path) if path.exists() else b""
        self.facts, self._checksum = _decode(path, data)
        self._written, self.synced = len(self.facts), 0
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._descriptor, len(data))
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}") from None
        self._dirty = True  # whoever wrote before may have died before syncing
        if not data:
            self._write(HEADER)
        self.sync()

    def append(self, fact: Fact) -> None:
        """Hand a fact to the operating system, so that it survives this process."""
        line, self._checksum = _encode(fact, self._checksum)
        self._write(line)
        self._written += 1

    def sync(self) -> None:
        """Force all that was appended to the disk, so that it survives the machine."""
        if self._dirty:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise EnvironmentProblem(f"cannot sync {self.path}: {error.strerror}") from None
            self._dirty, self.synced = False, self._written

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {self.path}: {error.strerror}") from None
        self._dirty = True

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
