"""A script that a job runs: prints a run directory, for ``kernelwright fetch`` to read in its log.

Stands alone, since nothing of Kernelwright travels with that job. Arguments: the run directory, and
a JSON file that maps the paths of files which the reader has to their SHA-256.

Each line begins with :data:`MARK`, then a word and JSON: ``file`` (path, bytes, digest), ``data``
(part of the file, compressed, in Base64) as often as it takes, at the end ``done`` (the number of
files in all); or ``error``.
"""

import base64
import hashlib
import json
import os
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

MARK = "kernelwright-run:"
FIRST, JOURNAL = "run.json", "journal.jsonl"
OF_THE_WRITER = ("lock", "lease.json")
"""Files that say who writes the directory: nobody writes the copy."""

PART_BYTES = 12_000
"""Ray passes on the lines of a log in pieces of 20,000 characters."""


def send(run: Path, known: dict[str, str]) -> None:
    """Print all that ``known`` lacks; a run that goes on is complete up to its journal's end."""
    try:
        is_run = (run / FIRST).is_file()
        files = _files(run) if is_run else []
    except OSError as error:
        _tell("error", f"cannot read {run} on the cluster: {error.strerror}")
        sys.exit(3)
    if not is_run:
        where = f"{run} is not a run directory on the cluster ({socket.gethostname()})"
        _tell("error", f"{where}: give the name of a job, or a path there")
        sys.exit(2)
    for path in files:
        name = path.relative_to(run).as_posix()
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the run replaced it
            continue
        digest = hashlib.sha256(data).hexdigest()
        if known.get(name) != digest:
            _tell("file", {"path": name, "bytes": len(data), "sha256": digest})
            for part in _parts(zlib.compress(data)):
                _tell("data", base64.b64encode(part).decode("ascii"))
    _tell("done", len(files))


def _files(run: Path) -> list[Path]:
    """Regular files, no links: what identifies the run first, and journals last.

    What is derived from a journal must not tell of more than the journal that is read after it.
    """
    found = []
    for folder, _, names in os.walk(run):
        for path in (Path(folder, name) for name in names):
            written = path.name not in OF_THE_WRITER and not path.name.endswith(".part")
            if written and path.is_file() and not path.is_symlink():
                found.append(path)
    return sorted(found, key=lambda path: (path.name == JOURNAL, path != run / FIRST, path))


def _parts(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))


def _tell(word: str, content: object) -> None:
    sys.stdout.write(f"{MARK}{word} {json.dumps(content)}\n")


if __name__ == "__main__":
    # Stdout is the job's log file. Others on the node may not read runs.
    os.fchmod(sys.stdout.fileno(), 0o600)
    send(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
