"""The process that a checker watches: ``python -m workers.checkers.launcher INDEX ADAPTER …``.

Imports the adapter and what else is named, and waits. Each line of its input names the file of a
job: when the input ends, it opens the device of this index and launches each candidate once. It
does nothing else. Every buffer is an allocation of its own, exactly as long as its contents, and
outputs are left as the allocator gives them: so a checker sees each access beyond the end and each
use of uninitialised memory.
"""

import sys
from importlib import import_module
from pathlib import Path

from workers.backends.registry import load
from workers.checkers.job import job_format


def main() -> None:
    """Do the jobs that the standard input names; fails if there is none."""
    index, module, *packages = sys.argv[1:]
    adapter, jobs = load(module), job_format()
    for package in packages:
        import_module(package)
    paths = sys.stdin.read().splitlines()
    if not paths:
        sys.exit("was given no job")
    launch = adapter.open_under_checker(int(index))
    for path in paths:
        launch(jobs.validate_json(Path(path).read_bytes()))


if __name__ == "__main__":
    main()
