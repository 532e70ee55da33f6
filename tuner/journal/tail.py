"""Reads a journal as it grows, without a lock; another process writes it."""

import os
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Experiment
from tuner.journal.facts import Entry
from tuner.journal.file import HEADER, JournalDecoder, after_header, check_header
from tuner.journal.references import References

PART_BYTES = 4 << 20
"""Bytes that are read at once, so that a look at a long journal needs little memory."""


class JournalTail:
    """The entries of a journal that were not read before.

    A last line without its end is being written: it is read once it is whole.

    Args:
        path: the journal, which need not be there yet.
        experiment: what it must be about.
    """

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self._path = path
        self._decoder = JournalDecoder(path)
        self._references = References(path, experiment)
        self._file: tuple[int, int] | None = None
        self._read = 0

    def entries(self) -> Iterator[Entry]:
        """The next entries, up to the last whole line; none while there is no journal.

        Raises:
            EnvironmentProblem: it cannot be read, is damaged, or is another file than before or
                shorter: whoever follows it must begin again.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            if self._read:
                raise self._replaced() from None
            return
        except OSError as error:
            raise self._unreadable(error) from None
        try:
            found = os.fstat(descriptor)
            place = found.st_dev, found.st_ino
            if (self._file or place) != place or found.st_size < self._read:
                raise self._replaced()
            self._file = place
            while lines := self._whole_lines(descriptor):
                yield from self._decoded(lines)
        finally:
            os.close(descriptor)

    def _whole_lines(self, descriptor: int) -> bytes:
        """The next whole lines; a line longer than a part is read as a whole."""
        data, end = b"", -1
        try:
            while end < 0:
                part = os.pread(descriptor, PART_BYTES, self._read + len(data))
                if not part:
                    break
                data += part
                end = data.rfind(b"\n")
        except OSError as error:
            raise self._unreadable(error) from None
        if self._read == 0:
            check_header(self._path, data[: len(HEADER)])
        return data[: end + 1]

    def _decoded(self, lines: bytes) -> Iterator[Entry]:
        rest = lines if self._read else after_header(lines)
        self._read += len(lines)
        for entry in self._decoder.entries(rest):
            self._references.check(entry)
            yield entry

    def _unreadable(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(f"cannot read {self._path}: {error.strerror}")

    def _replaced(self) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"{self._path} was cut, replaced or removed while it was read: restore it from a copy"
        )
