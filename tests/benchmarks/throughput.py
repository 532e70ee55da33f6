"""Configurations a second from first proposal to last outcome, verified; beside a peer's.

Usage: python -m tests.benchmarks.throughput [SPEC] [--fleet local|ray] [--out DIR] [--json FILE]
       [--peer COMMAND] [--benches N] [--against-one]

The peer is a command whose last line of output is a JSON object with ``configs_per_s``, taken on
the same space, card and cores in the same call. Start-up and confirmation are apart; nothing is
taken from a cache of compiled binaries. ``--against-one`` runs it on the first NVIDIA GPU alone as
well.
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
from tuner.run_directory import RunView

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "tests/gpu/data/silu_space/cuda.yaml"


def ours(spec: Path, fleet: str, run: Path, **environment: str) -> dict[str, Any]:
    """Run it, and read from the journal how fast it went."""
    words = ["-m", "cluster", "run", str(spec), "--run-dir", str(run)]
    more = ["--fleet", "local"] if fleet == "local" else []
    environment = {**os.environ, "KERNELWRIGHT_HOME": "", **environment}  # no earlier binaries
    command = [sys.executable, *words, *more]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
    return timeline(RunView.open(run).entries())


def theirs(command: str) -> dict[str, Any]:
    """Run the peer without CuPy's cache of binaries, as ours starts without one; its figures."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "CUPY_CACHE_DIR": cache}
        words = shlex.split(command)
        ran = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found


def row(name: str, found: dict[str, Any]) -> None:
    """Print one line of the table."""
    idle = " ".join(f"{one['idle']:.1%}" for one in found["benches"].values())
    rates = f"{found['seconds']:7.2f}  {found['per_second']:6.1f}"
    print(f"{name:>12}  {found['trials']:6}  {rates}  {idle}  {found['given_up']}")


def main(arguments: list[str] | None = None) -> int:
    """Print a table; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=SPEC)
    parser.add_argument("--fleet", choices=("local", "ray"), default="local")
    parser.add_argument("--out", type=Path, help="an empty folder to keep the run in")
    parser.add_argument("--peer")
    parser.add_argument("--benches", type=int, help="fail unless so many were busy at once")
    parser.add_argument("--against-one", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    print(f"{'':>12}  {'trials':>6}  {'seconds':>7}  {'/s':>6}  idle  given up")
    with tempfile.TemporaryDirectory() as made:
        folder = (given.out or Path(made)).absolute()
        found = {"ours": (one := ours(given.spec, given.fleet, folder / "run"))}
        row("ours", one)
        if given.against_one:
            alone = ours(given.spec, given.fleet, folder / "alone", CUDA_VISIBLE_DEVICES="0")
            row("on one", alone)
            found |= {"alone": alone, "gain": one["per_second"] / alone["per_second"]}
            print(f"{found['gain']:.2f} times the rate on one")
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
