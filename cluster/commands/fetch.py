"""``fetch``: copies a run directory from where a job made it, through the log of another job.

What arrives is not trusted: paths, sizes and digests are checked, and no file is written outside
the target or over a journal that was continued here.
"""

import asyncio
import base64
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer
from pydantic import Field, TypeAdapter

from cluster.cli.console import say
from cluster.commands.submit import http_address, job_name, place
from cluster.jobs import send_run
from cluster.jobs.job_client import JobServer
from cluster.settings import take_job_server
from tuner.errors import EnvironmentProblem, SpecError
from tuner.files import inside, make_folder
from tuner.run_directory import RunView

MAX_BYTES = 1 << 30
"""A file may have so many bytes."""

MAX_TOTAL = 8 << 30
"""All files together may have so many."""

_HAVE = "have.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSent:
    """What is told of a file before its data."""

    path: Annotated[str, Field(max_length=1000)]
    bytes: Annotated[int, Field(ge=0, le=MAX_BYTES)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


_FILE = TypeAdapter(FileSent)


def fetch(run: str, *, address: str | None, output: Path | None) -> None:
    """Copy a run directory to ``output``, ``runs/NAME`` by default; go on where a copy ended.

    Raises:
        SpecError: there is no such run.
        EnvironmentProblem: the cluster cannot be reached, its node has no Python, the copy is
            incomplete or damaged, or ``output`` holds another run, or one that was continued.
    """
    url = http_address(take_job_server(address))
    target = output or Path("runs", PurePosixPath(run).name)
    if target.exists() and not (target / send_run.FIRST).is_file() and any(target.iterdir()):
        raise EnvironmentProblem(f"{target} is no run directory: name another with --output")
    have = _digests(target)
    with tempfile.TemporaryDirectory(prefix="kernelwright-fetch-") as folder:
        script = Path(str(send_run.__file__))
        shutil.copyfile(script, Path(folder, script.name))
        Path(folder, _HAVE).write_text(json.dumps(have), encoding="utf-8")
        server, job = JobServer(url), job_name(f"fetch-{PurePosixPath(run).name}")
        server.submit(job, f"python {script.name} {place(run)} {_HAVE}", Path(folder))
    receiver = Receiver(target)
    asyncio.run(_receive(server, job, receiver))
    if receiver.files is None:
        if ended := server.end(job):
            ended.check_began()
        raise EnvironmentProblem(
            f"the copy of {run} is incomplete: fetch it again to go on with the rest"
        )
    RunView.open(target).entries()
    typer.echo(
        f"{receiver.received} of {receiver.files} files fetched, {receiver.total:,} bytes; "
        f"the others were there"
    )
    typer.echo(target)


async def _receive(server: JobServer, job: str, receiver: "Receiver") -> None:
    async with aclosing(server.follow(job, say)) as texts:
        async for line in _lines(texts):
            receiver.take(line)
            if receiver.files is not None:
                return


async def _lines(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    rest = ""
    async for text in texts:
        *lines, rest = (rest + text).split("\n")
        if len(rest) > 10 * send_run.PART_BYTES:
            raise EnvironmentProblem("the job prints a line that is no part of a run directory")
        for line in lines:
            yield line


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


class Receiver:
    """Writes what :mod:`cluster.jobs.send_run` prints into a folder, file by file, each whole.

    ``files`` is the number of files of the run, ``None`` until all have arrived.
    """

    def __init__(self, target: Path) -> None:
        self.files: int | None = None
        self.received = 0
        self.total = 0
        self._target = target
        self._file: FileSent | None = None
        self._inflate = zlib.decompressobj()
        self._data = bytearray()

    def take(self, line: str) -> None:
        """Take a line of the log; others than the script's are ignored.

        Raises:
            SpecError: there is no such run, or a path leads out of the folder.
            EnvironmentProblem: the run cannot be read there, or what arrives is damaged.
        """
        if not line.startswith(send_run.MARK):
            return
        word, _, text = line.removeprefix(send_run.MARK).partition(" ")
        try:
            match word:
                case "file":
                    self._begin(_FILE.validate_json(text))
                case "data":
                    self._add(base64.b64decode(json.loads(text), validate=True))
                case "done":
                    self._finish()
                    self.files = int(json.loads(text))
                case _:
                    raise SpecError(str(json.loads(text)))
        except (ValueError, TypeError, RecursionError, OverflowError, zlib.error) as error:
            raise EnvironmentProblem(f"what the job sends is damaged: {error}") from None

    def _begin(self, file: FileSent) -> None:
        self._finish()
        self.total += file.bytes
        if self.total > MAX_TOTAL:
            raise EnvironmentProblem(f"the run has more than {MAX_TOTAL:,} bytes")
        self._file, self._inflate, self._data = file, zlib.decompressobj(), bytearray()

    def _add(self, part: bytes) -> None:
        if self._file is None:
            raise ValueError("data of no file")
        self._data += self._inflate.decompress(part, self._file.bytes + 1 - len(self._data))
        if len(self._data) > self._file.bytes or self._inflate.unconsumed_tail:
            raise ValueError(f"{self._file.path} is longer than was told")

    def _finish(self) -> None:
        """Write the file whose data has arrived."""
        if self._file is None:
            return
        file, data = self._file, bytes(self._data)
        if len(data) != file.bytes or hashlib.sha256(data).hexdigest() != file.sha256:
            raise ValueError(f"{file.path} has not the digest that was told")
        path = inside(self._target, file.path)
        self._check_replaced(path, data)
        make_folder(path.parent)
        _write(inside(self._target, file.path), data)
        self._file = None
        self.received += 1

    def _check_replaced(self, path: Path, data: bytes) -> None:
        """Keep another run, and facts that only the copy has."""
        if path == self._target / send_run.FIRST and path.exists():
            raise EnvironmentProblem(
                f"{self._target} holds another run: name another folder with --output"
            )
        with suppress(FileNotFoundError):
            if path.name == send_run.JOURNAL and not data.startswith(path.read_bytes()):
                raise EnvironmentProblem(
                    f"{path} was continued here: name another folder with --output"
                )


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole; the seed of the inputs is readable by its owner alone."""
    aside = path.parent / f".{path.name}.part"
    mode = 0o600 if path.name == "secret" else 0o666
    try:
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}") from None
