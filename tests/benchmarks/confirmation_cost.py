"""Where the time of a confirmation goes: seconds of each step, and of the calls within it.

``python -m tests.benchmarks.confirmation_cost [SPEC] [--finalists N] [--calls N]`` prepares a bench
on this machine, confirms evenly spaced configurations of the spec's template in a few processes of
each scope, and prints a line of JSON: seconds of each step, requests to the child, and the calls
that took most of them, by cumulative seconds in the bench's thread.
"""

import argparse
import cProfile
import json
import pstats
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from tuner.candidate import BASELINE, Candidate
from tuner.device import Device
from tuner.engine.candidates import Candidates
from tuner.engine.work import BenchSetup, ConfirmWork
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.space.feasible import feasible_set
from tuner.trial import Configuration, Rejected
from workers.bench import protocol
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "deploy/experiments/silu_and_mul/cuda.yaml"
STEPS = ("tune", "tune", "rest", "rest", "all")
"""Scopes of the processes; the first of either part has the extra checks."""


def finalists(experiment: Experiment, device: Device, count: int) -> list[Candidate]:
    """The baseline, then evenly spaced configurations, compiled for every shape."""
    assert experiment.template is not None, "the spec needs a template"
    candidates, shapes = Candidates(experiment, device), every_shape(experiment)
    space = feasible_set(experiment, experiment.template, device)
    chosen = [space.configuration(place * len(space) // count) for place in range(count)]
    begun = [candidates.begin(BASELINE, None, Configuration(()), shapes)]
    begun += [
        candidates.begin(trial, experiment.template, one, shapes)
        for trial, one in enumerate(chosen)
    ]
    with CompileWorker(device) as compiler:
        made = [candidates.compile_now(compiler.compile, one) for one in begun]
    found = [one for one in made if isinstance(one, Candidate)]
    assert len(found) > 1, [one.detail for one in made if isinstance(one, Rejected)]
    return found


def profiled(step: Callable[[], object], calls: int) -> dict[str, Any]:
    """Seconds of a step, its requests by kind, and its costliest calls within the repository."""
    asked: Counter[str] = Counter()
    encode = protocol.REQUESTS.dump_json

    def counting(requests):
        asked.update(type(one).__name__ for one in requests)
        return encode(requests)

    profile, began = cProfile.Profile(), time.monotonic()
    with mock.patch.object(protocol.REQUESTS, "dump_json", counting):
        profile.runcall(step)
    seconds = time.monotonic() - began
    found = {
        f"{Path(file).relative_to(ROOT)}:{name}": [round(cumulative, 3), count]
        for (file, _, name), (_, count, _, cumulative, _) in pstats.Stats(profile).stats.items()
        if file.startswith(str(ROOT))
    }
    ranked = sorted(found.items(), key=lambda one: -one[1][0])
    return {"seconds": round(seconds, 2), "requests": dict(asked), "calls": dict(ranked[:calls])}


def cost(spec: Path, count: int, calls: int) -> dict[str, Any]:
    """What each step took."""
    experiment = load_experiment(spec)
    with closing(DeviceBench(experiment.kernel.language, 0)) as bench:
        baseline, *others = finalists(experiment, bench.device(), count)
        setup = BenchSetup(experiment=experiment, baseline=baseline, secret=secrets.randbits(63))
        found = {"prepare": profiled(lambda: bench.prepare(setup), calls)}
        for process, scope in enumerate(STEPS):
            work = ConfirmWork(
                process=process,
                scope=scope,
                finalists=tuple(others),
                extra_checks=tuple(c.trial for c in others) if scope not in STEPS[:process] else (),
            )
            found[f"{process}-{scope}"] = profiled(lambda work=work: bench.confirm(work), calls)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print what each step took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=SPEC)
    parser.add_argument("--finalists", type=int, default=8)
    parser.add_argument("--calls", type=int, default=40)
    given = parser.parse_args(arguments)
    for step, found in cost(given.spec, given.finalists, given.calls).items():
        print(json.dumps({step: found}))
        print(step, found["seconds"], file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
