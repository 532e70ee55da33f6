"""The process that a checker watches.

Run as ``python -m workers.checkers.launcher INDEX SIGNS ADAPTER …``. It imports
the adapter and what else is named, and opens the device of this index once it is told to by an
empty line. Each further line names the file of a job: a candidate that it launches once. It does
nothing else. Every buffer is an allocation of its own, exactly as long as its contents, and
outputs are left as the allocator gives them: so a checker sees each access beyond the end and each
use of uninitialised memory.

It makes a file when it has imported, and one when the device is open: ``SIGNS`` with
:data:`IMPORTED` and :data:`OPEN` added.
"""

import sys
from importlib import import_module
from pathlib import Path

from workers.backends.registry import load
from workers.checkers.job import job_format

IMPORTED, OPEN = ".imported", ".open"


def main() -> None:
    """Do the jobs that the standard input names; fails if there is none."""
    index, signs, module, *packages = sys.argv[1:]
    adapter, jobs = load(module), job_format()
    for package in packages:
        import_module(package)
    Path(signs + IMPORTED).touch()
    if not sys.stdin.readline():
        sys.exit("was not told to open the device")
    launch = adapter.open_under_checker(int(index))
    Path(signs + OPEN).touch()
    paths = sys.stdin.read().splitlines()
    for path in paths:
        launch(jobs.validate_json(Path(path).read_bytes()))
    if not paths:
        sys.exit("was given no job")


if __name__ == "__main__":
    main()
