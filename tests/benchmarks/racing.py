"""What racing saves on a device, and what it gives up there: a space measured in full, then raced.

Usage: python -m tests.benchmarks.racing [SPEC] [--trials 240] [--seed 0] [--json FILE]

Measures configurations of the spec's template one after the other on the first device, each in full
and raced against those before it, in random order of the two, in one child. Says how many seconds
both took, how many cells were given up, how far the times of those are from the full ones, and
whether a configuration that is among the best in full was given up. The exit code says whether the
best was kept.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from cluster.fleets.local import compile_slots
from tuner.candidate import BASELINE, Candidate
from tuner.engine.candidates import Candidates
from tuner.engine.work import BenchSetup
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.plan import CellPlan
from tuner.racing import CutoffTracker
from tuner.search.port import Losses
from tuner.space.feasible import feasible_set
from tuner.trial import Configuration, CutShort, Full, Measured, Rejected
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker

SPEC = Path(__file__).parents[2] / "tests/gpu/data/silu_space/cuda.yaml"


def those_that_compile(
    experiment: Experiment, bench: DeviceBench, chosen: Sequence[tuple[int, Configuration]]
) -> Iterator[Candidate]:
    """The baseline, and those configurations that compile."""
    device = bench.device()
    slots = compile_slots(device, processors=len(os.sched_getaffinity(0)), benches=1)
    workers = [CompileWorker(device) for _ in range(slots)]
    candidates = Candidates(experiment, device)

    def build(number: int, trial: int, configuration: Configuration) -> Candidate | None:
        template = None if trial == BASELINE else experiment.template
        shapes = every_shape(experiment) if trial == BASELINE else experiment.shapes.tune
        begun = candidates.begin(trial, template, configuration, shapes)
        made = candidates.compile_now(workers[number % slots].compile, begun)
        if isinstance(made, Rejected) or not any(isinstance(c, CellPlan) for c in made.plan.cells):
            return None
        return made

    def share(worker: int) -> list[Candidate | None]:
        return [build(worker, *one) for one in chosen[worker::slots]]

    try:
        with ThreadPoolExecutor(slots) as pool:
            for some in pool.map(share, range(slots)):
                yield from (one for one in some if one is not None)
    finally:
        for worker in workers:
            worker.close()


def compare(spec: Path, trials: int, seed: int) -> dict[str, Any]:
    """Measure in full and raced."""
    experiment = load_experiment(spec)
    assert experiment.template is not None
    rng = np.random.default_rng(seed)
    weights = tuple(shape.weight for shape in experiment.shapes.tune)
    with closing(DeviceBench(experiment.kernel.language, 0)) as bench:
        space = feasible_set(experiment, experiment.template, bench.device())
        points = rng.permutation(len(space))[:trials]
        chosen = [(trial, space.configuration(int(point))) for trial, point in enumerate(points)]
        made = those_that_compile(experiment, bench, [(BASELINE, Configuration(())), *chosen])
        candidates = {candidate.trial: candidate for candidate in made}
        setup = BenchSetup(experiment=experiment, baseline=candidates.pop(BASELINE), secret=seed)
        prepared = bench.prepare(setup)
        assert not isinstance(prepared.result, Rejected), prepared.result
        race = CutoffTracker(experiment.confirm.top, weights)
        seconds = {"full": 0.0, "raced": 0.0}
        full: dict[int, Measured] = {}
        raced: dict[int, Measured] = {}
        for trial, candidate in sorted(candidates.items()):
            for kind in rng.permutation(["full", "raced"]).tolist():
                cutoffs: Losses = race.cutoffs if kind == "raced" else ()
                began = time.perf_counter()
                outcome = bench.run(candidate, cutoffs).outcome
                seconds[kind] += time.perf_counter() - began
                if isinstance(outcome, Measured):
                    (full if kind == "full" else raced)[trial] = outcome
            if trial in raced:
                race.take(trial, raced[trial])
    return {"trials": len(candidates), "seconds": seconds} | judged(
        full, raced, len(weights), experiment.confirm.top
    )


def judged(
    full: dict[int, Measured], raced: dict[int, Measured], shapes: int, places: int
) -> dict[str, Any]:
    """What was given up, by shape."""
    both = sorted(full.keys() & raced.keys())
    found: list[dict[str, Any]] = []
    for shape in range(shapes):
        cells = {trial: (full[trial].cells[shape], raced[trial].cells[shape]) for trial in both}
        timed = sorted(
            (cell.ratio, trial) for trial, (cell, _) in cells.items() if isinstance(cell, Full)
        )
        short = {trial for trial, (_, cell) in cells.items() if isinstance(cell, CutShort)}
        errors = [abs(cells[t][1].ratio / ratio - 1) for ratio, t in timed if t in short]
        best = [trial for _, trial in timed]
        found.append(
            {
                "cells": len(timed),
                "given_up": len(short),
                "error": statistics.median(errors) if errors else None,
                "best_kept": not best or best[0] not in short,
                "lost_of_best": sum(trial in short for trial in best[:places]),
            }
        )
    return {"shapes": found}


def main(arguments: list[str] | None = None) -> int:
    """Print a table; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=SPEC)
    parser.add_argument("--trials", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = compare(given.spec, given.trials, given.seed)
    for kind, seconds in found["seconds"].items():
        each = 1e3 * seconds / max(1, found["trials"])
        print(f"{kind:>6}: {found['trials']} trials in {seconds:.2f} s, {each:.1f} ms each")
    print("shape  cells  given up  error of those  best kept  of the best given up")
    for shape, one in enumerate(found["shapes"]):
        error = "-" if one["error"] is None else f"{one['error']:.1%}"
        print(
            f"{shape:5}  {one['cells']:5}  {one['given_up']:8}  {error:>14}  "
            f"{'yes' if one['best_kept'] else 'NO':>9}  {one['lost_of_best']:20}"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0 if all(one["best_kept"] for one in found["shapes"]) else 1


if __name__ == "__main__":
    sys.exit(main())
