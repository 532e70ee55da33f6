"""What it costs to start a bench child and open its device: wall and CPU seconds.

Usage: python -m tests.benchmarks.child_start [--backend cuda] [--starts 10]

The first start also starts the fork server, which imports everything, and compiles the bench's own
kernels.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from workers.bench.deadlines import Deadlines
from workers.bench.supervisor import Supervisor

TICK = os.sysconf("SC_CLK_TCK")


def started(backend: str, folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a child until it has described its device."""
    bench = Supervisor(backend, 0, Deadlines(), folder)
    began = time.perf_counter()
    bench.describe()
    wall = time.perf_counter() - began
    fields = Path(f"/proc/{bench.pid}/stat").read_text().rpartition(")")[2].split()
    bench.close()
    return wall, (int(fields[11]) + int(fields[12])) / TICK


def main() -> None:
    """Print the first start, and the median of the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("opencl", "cuda"), default="opencl")
    parser.add_argument("--starts", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        seen = [started(given.backend, Path(made)) for _ in range(1 + given.starts)]
    walls, cpus = zip(*seen[1:], strict=True)
    print(
        json.dumps(
            {
                "first": {"wall": seen[0][0], "cpu": seen[0][1]},
                "others": {"wall": statistics.median(walls), "cpu": statistics.median(cpus)},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
