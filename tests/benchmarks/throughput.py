"""Configurations a second from first proposal to last outcome, verified; beside a peer's.

Usage: python -m tests.benchmarks.throughput [SPEC] [--fleet local|ray] [--out DIR] [--json FILE]
       [--peer COMMAND] [--benches N]

The peer is a command whose last line of output is a JSON object with ``configs_per_s``, taken on
the same space, card and cores in the same call. Start-up and confirmation are apart; nothing is
taken from a cache of compiled binaries.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.timeline import all_busy, timeline
from tuner.store.run_directory import RunView

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "tests/gpu/data/silu_space/cuda.yaml"


def ours(spec: Path, fleet: str, folder: Path) -> dict[str, Any]:
    """Run it, and read from the journal how fast it went."""
    run = folder / "run"
    words = ["-m", "cluster", "run", str(spec), "--run-dir", str(run)]
    more = ["--fleet", "local"] if fleet == "local" else []
    environment = {**os.environ, "KERNELWRIGHT_HOME": ""}  # nothing compiled earlier helps
    command = [sys.executable, *words, *more]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
    return timeline(RunView.open(run).facts())


def theirs(command: str) -> dict[str, Any]:
    """Run the peer; its own figures."""
    ran = subprocess.run(shlex.split(command), check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print a table; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=SPEC)
    parser.add_argument("--fleet", choices=("local", "ray"), default="local")
    parser.add_argument("--out", type=Path, help="an empty folder to keep the run in")
    parser.add_argument("--peer")
    parser.add_argument("--benches", type=int, help="fail unless so many were busy at once")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as made:
        found = {"ours": ours(given.spec, given.fleet, (given.out or Path(made)).absolute())}
    print(f"{'':>12}  {'trials':>6}  {'seconds':>7}  {'/s':>6}  idle  given up")
    idle = " ".join(f"{one['idle']:.1%}" for one in found["ours"]["benches"].values())
    one = found["ours"]
    rates = f"{one['seconds']:7.2f}  {one['per_second']:6.1f}"
    print(f"{'ours':>12}  {one['trials']:6}  {rates}  {idle}  {one['given_up']}")
    if given.peer:
        found["theirs"] = peer = theirs(given.peer)
        name, rate = peer.get("peer", "peer"), peer["configs_per_s"]
        print(f"{name:>12}  {peer.get('configs', ''):>6}  {peer.get('wall_s', ''):>7}  {rate:6.1f}")
        found["times"] = one["per_second"] / rate
        print(f"{found['times']:.1f} times the peer's rate")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0 if given.benches is None or all_busy(one, given.benches) else 1


if __name__ == "__main__":
    sys.exit(main())
