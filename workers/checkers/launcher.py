"""The process that a checker watches: ``python -m workers.checkers.launcher JOB …``.

Launches each candidate once, and nothing else. Every buffer is an allocation of its own, exactly as
long as its contents, and outputs are left as the allocator gives them: so a checker sees each
access beyond the end and each use of uninitialised memory.
"""

import sys
from pathlib import Path

from workers.backends.registry import load
from workers.checkers.job import decode_job


def main() -> None:
    """Do the jobs that the command line names."""
    for path in sys.argv[1:]:
        job = decode_job(Path(path).read_bytes())
        load(job.adapter).launch_under_checker(job)


if __name__ == "__main__":
    main()
