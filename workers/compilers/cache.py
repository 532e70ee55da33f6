"""Compiled binaries kept from run to run, by content.

One file per entry, in a folder that processes and nodes can share. Entries are written aside, moved
into place and checked when read, so that a torn, damaged or foreign one is a miss. Only for
backends whose kernels cannot write files: a kernel on a CPU device could forge entries.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from tuner.plan import Binary, Build
from tuner.trial import Rejected
from workers.compilers.port import Compiler
from workers.compilers.protocol import decode_result, encode_result

LIMIT_BYTES = 1 << 30
"""Above it, the least recently used entries are removed until a fifth is free."""

MEASURE_EVERY = 500
"""Entries that one process writes between two measurements of the folder's size."""

_CHECK = hashlib.sha256().digest_size
_LENGTH = 4


class CachedCompiler:
    """Port :class:`workers.compilers.port.Compiler` over another one, whose binaries it keeps.

    Args:
        compiler: compiles what is missing; its rejections are not kept.
        folder: created if missing; an unusable folder makes every lookup a miss.
        fingerprint: decides a binary beside its build: compiler, version, architecture.
        limit_bytes: of the folder.
    """

    def __init__(
        self, compiler: Compiler, folder: Path, fingerprint: str, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._compiler = compiler
        self._folder = folder
        self.fingerprint: str | None = fingerprint
        self._limit = limit_bytes
        self._written = 0

    def compile(self, build: Build) -> Binary | Rejected:
        """The kept binary, or compile one build and keep it."""
        key = hashlib.sha256(f"{self.fingerprint}\n{build.digest}".encode()).hexdigest()
        path = self._folder / key[:2] / key
        if kept := _read(path, build):
            return kept
        result = self._compiler.compile(build)
        if isinstance(result, Binary):
            with suppress(OSError):
                self._keep(path, result)
        return result

    def _keep(self, path: Path, binary: Binary) -> None:
        if self._written % MEASURE_EVERY == 0:
            self._make_room()
        self._written += 1
        text, (code,) = encode_result(binary)
        rest = len(text).to_bytes(_LENGTH, "big") + text + code
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(rest).digest() + rest)
            Path(aside).replace(path)
        except OSError:
            Path(aside).unlink(missing_ok=True)
            raise

    def _make_room(self) -> None:
        entries = []
        for path in self._folder.glob("??/*"):
            with suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        held = sum(size for _, size, _ in entries)
        if held <= self._limit:
            return
        for _, size, path in sorted(entries):
            if held <= 0.8 * self._limit:
                return
            with suppress(OSError):
                path.unlink()
            held -= size


def _read(path: Path, build: Build) -> Binary | None:
    """The entry, if it exists and is intact; marks it as used."""
    try:
        data = path.read_bytes()
        rest = data[_CHECK:]
        if hashlib.sha256(rest).digest() != data[:_CHECK]:
            return None
        length = _LENGTH + int.from_bytes(rest[:_LENGTH], "big")
        result = decode_result(rest[_LENGTH:length], [rest[length:]], build)
        with suppress(OSError):
            os.utime(path)
    except (OSError, ValueError):
        return None
    return result if isinstance(result, Binary) else None
