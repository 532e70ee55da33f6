"""What verifying costs: searches with the checks, in turn with the same ones without them.

``python -m tests.benchmarks.verification_cost [SPEC] [--json FILE]`` searches the spec's template
three times with and three times without on this machine, since two searches alike differ by up to
a tenth, and prints one JSON line of medians: device seconds per candidate with the checks and
without, and wall time from first proposal to last outcome. Only here can the checks be turned off,
by replacing them; racing, compiling ahead and feeding the device stay as they are.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from cluster.fleets.local import open_local_fleet
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.benchmarks.timeline import timeline
from tuner.experiment.load import load_experiment
from tuner.journal.facts import TrialFinished
from tuner.run_directory import RunDirectory, RunView
from workers.bench.launcher import Launcher
from workers.bench.session import BenchSession
from workers.integrity.timing_recheck import Accepted

SPEC = Path(__file__).parents[2] / "tests/gpu/data/silu_space/cuda.yaml"
SEARCHES = 3
SHARE, WALL = 0.15, 1.3
"""Verification's largest share of device seconds, and a search's wall time over that without."""


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Launch what checks would launch within a timing, and look at nothing."""

    time, run = BenchSession.time, Launcher.run

    def unasked(*given, check=False, **more):
        return time(*given, **more)

    def blind(launcher: Launcher, loaded, shape, bursts, expected, **more):
        unseen = [replace(one, inspect=None, idle=()) for one in bursts]
        return run(launcher, loaded, shape, unseen, {}, **more)

    def trust(prep, session, loaded, baseline, shape, cache, samples, again):
        return Accepted(samples)

    with (
        mock.patch.object(BenchSession, "check", return_value=None),
        mock.patch.object(BenchSession, "time", unasked),
        mock.patch.object(Launcher, "run", blind),
        mock.patch("workers.bench.trial_runner.recheck_timing", trust),
        mock.patch("workers.bench.interleaving.recheck_timing", trust),
    ):
        yield


def search(spec: Path, folder: Path) -> dict[str, Any]:
    """A whole run without Ray; what its search took."""
    experiment = load_experiment(spec)
    experiment = replace(experiment, confirm=replace(experiment.confirm, top=1, processes=2))
    RunDirectory.create(folder, experiment, spec.read_text()).close()

    async def drive() -> None:
        async for _ in SearchRun(RunProcess(folder, open_local_fleet)).progress():
            pass

    asyncio.run(drive())
    entries = RunView.open(folder).entries()
    facts = [entry.fact for entry in entries]
    device = [fact.device_seconds for fact in facts if isinstance(fact, TrialFinished)]
    return {**timeline(entries), "device_seconds": sum(device) / len(device)}


def compare(spec: Path) -> dict[str, float]:
    """The same searches with the checks and without."""
    checked, bare = [], []
    for _ in range(SEARCHES):
        with tempfile.TemporaryDirectory() as made:
            checked.append(search(spec, Path(made) / "checked"))
            with unchecked():
                bare.append(search(spec, Path(made) / "unchecked"))

    def median(found: list[dict[str, Any]], what: str) -> float:
        return statistics.median(one[what] for one in found)

    device, device_bare = median(checked, "device_seconds"), median(bare, "device_seconds")
    wall, wall_bare = median(checked, "seconds"), median(bare, "seconds")
    return {
        "candidates": median(checked, "trials"),
        "given_up": median(checked, "given_up"),
        "given_up_without_checks": median(bare, "given_up"),
        "device_seconds_per_candidate": round(device, 5),
        "without_checks": round(device_bare, 5),
        "verification_share": round(1 - device_bare / device, 3),
        "seconds": round(wall, 3),
        "seconds_without_checks": round(wall_bare, 3),
        "wall_to_unchecked": round(wall / wall_bare, 3),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison; fail where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=SPEC)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = compare(given.spec)
    print(json.dumps(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return int(found["verification_share"] > SHARE or found["wall_to_unchecked"] > WALL)


if __name__ == "__main__":
    sys.exit(main())
