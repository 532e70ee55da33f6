"""How long a confirmed answer takes: seconds from the command to its end, and where they went.

``python -m tests.benchmarks.answer_time --out FOLDER SPEC [OPTION …]`` runs ``kernelwright run SPEC
--fleet local OPTION …`` and prints one line. ``--runs N`` runs it N times one after the other and
then N times at once, and prints the ratio of the two. Fails if a run does.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLI = (sys.executable, "-m", "cluster")


def answer(spec: str, run: Path, options: list[str]) -> tuple[float, int]:
    """Run a spec; the seconds that the command took, and its exit code."""
    command = [*CLI, "run", spec, "--fleet", "local", "--run-dir", str(run), *options]
    began = time.monotonic()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    lines = [*ended.stderr.splitlines(), *ended.stdout.splitlines()]
    outcome = [line for line in lines if "outcome=" in line] or lines
    print(f"   {' '.join(outcome[-1:])}", flush=True)
    return seconds, ended.returncode


def parts(run: Path) -> str:
    """The wall-clock seconds of each kind of work, and of none."""
    command = [*CLI, "report", "--timeline", "--json", str(run)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        return "no timeline"
    found = json.loads(told.stdout)
    walls = [f"{one['kind']} {one['wall']:.1f}" for one in found["kinds"]]
    return ", ".join([*walls, f"nothing {found['waiting']:.1f}"])


def main(arguments: list[str] | None = None) -> int:
    """Print the seconds of each run."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("spec")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1)
    given, options = parser.parse_known_args(arguments)
    runs = [given.out / f"alone{number}" for number in range(given.runs)]
    found = [answer(given.spec, run, options) for run in runs]
    alone = sum(seconds for seconds, _ in found)
    print(f"answer_time {given.spec}: {alone:.1f} s ({parts(runs[0])})", flush=True)
    if given.runs > 1:
        began = time.monotonic()
        with ThreadPoolExecutor(given.runs) as pool:
            beside = [given.out / f"beside{number}" for number in range(given.runs)]
            found += pool.map(lambda run: answer(given.spec, run, options), beside)
        together = time.monotonic() - began
        each = ", ".join(f"{seconds:.1f}" for seconds, _ in found[given.runs :])
        print(
            f"answer_time {given.spec} {given.runs} at once: {together:.1f} s ({each}), "
            f"{together / alone:.2f} times one after the other"
        )
    return max(code for _, code in found)


if __name__ == "__main__":
    sys.exit(main())
