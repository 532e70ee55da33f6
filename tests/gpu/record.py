"""Records what fresh processes of one GPU say of one kernel: ``python -m tests.gpu.record OUT``.

Times copies of a bundled baseline against each other by the bench's own confirmation, at three
sizes, hot and cold, and writes the per-process medians to ``OUT`` (``.json.gz``), by size and cache
state: a list for each entrant with one time for each process. Put it into
``tests/tuner/results/data/`` and the verdicts are tested on it.

Beside the copies runs the same kernel made 2 % slower: it moves as many more bytes, of memory of
its own, since rows that it does twice it would find in the cache. For every five processes, a
confirmation each, the verdicts on the copies and on it are printed; its times are not written.
"""

import argparse
import gzip
import json
import math
import secrets
import sys
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.candidate import BASELINE, Candidate
from tuner.engine.work import BenchSetup, ConfirmWork
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, ScratchArgument, ShapeBinding, Template
from tuner.expressions import Expression
from tuner.results.statistics import Noise, compare
from tuner.space.lower import lower
from tuner.trial import Configuration, Rejected
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker

SPEC = Path(__file__).parents[2] / "deploy/experiments/silu_and_mul/cuda.yaml"
SIZES = {
    "below 4 MB": {"tokens": 16, "d": 11008},
    "4 to 60 MB": {"tokens": 512, "d": 11008},
    "above 60 MB": {"tokens": 2048, "d": 14336},
}
PROCESSES = 5
"""Of one confirmation."""

MORE = "max(1, tokens // 50)"
"""Rows beyond those of the shape."""
SLOWER = {
    "int d) {": "int d, __half* more) {",
    "row = blockIdx.x;": "row = blockIdx.x < ROWS ? blockIdx.x : blockIdx.x - ROWS;",
    "gates = input + row * 2 * d;": "gates = (blockIdx.x < ROWS ? input : more) + row * 2 * d;",
    "result = out": "result = (blockIdx.x < ROWS ? out : more + MORE * 2ll * d)",
}
"""What makes the baseline do as many rows of a scratch buffer as well."""


def planted(experiment: Experiment) -> Template:
    """The baseline with a fiftieth more to do."""
    kernel = experiment.kernel
    text = kernel.source.text
    assert kernel.launch is not None
    for old, new in SLOWER.items():
        assert old in text, old
        text = text.replace(old, new)
    arguments = (*(argument.name for argument in experiment.arguments), "more")
    return Template(
        source=replace(kernel.source, text=text),
        entry=kernel.entry,
        parameters={"SLOWER": (1,)},
        defines={"ROWS": Expression.parse("tokens"), "MORE": Expression.parse(MORE)},
        launch=replace(
            kernel.launch, grid=(Expression.parse(f"tokens + {MORE}"),), arguments=arguments
        ),
        scratch=(
            ScratchArgument(
                name="more", dtype="float16", shape=(Expression.parse(f"{MORE} * 3 * d"),), align=16
            ),
        ),
    )


def judge(times: list[list[float]], planted: list[float], comparisons: int) -> None:
    """Print the verdicts of every five processes, and how much slower the planted kernel was."""
    every = np.array([*times, planted])
    logs = np.log(every[0] / every[1:])
    slower = math.expm1(-logs[-1].mean())
    for first in range(0, every.shape[1] - PROCESSES + 1, PROCESSES):
        part = logs[:, first : first + PROCESSES].tolist()
        noise = Noise.pooled(part)
        found = [compare(each, noise, comparisons).verdict for each in part]
        print(f"  copies {', '.join(found[:-1])}; {slower:.1%} slower: {found[-1]}", flush=True)


def main() -> int:
    """Record; the exit code says whether every process answered for every entrant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--entrants", type=int, default=3)
    given = parser.parse_args()
    experiment = load_experiment(SPEC)
    shapes = replace(
        experiment.shapes, tune=tuple(map(ShapeBinding, SIZES.values())), held_out=(), domain=()
    )
    experiment = replace(experiment, shapes=shapes)
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with closing(DeviceBench("cuda", 0)) as bench, CompileWorker(bench.device()) as compiler:
        plan = lower(experiment, None, Configuration(()), shapes.tune, bench.device())
        binaries = compiler.compile(plan.builds)
        assert not isinstance(binaries, Rejected), binaries
        copies = [
            Candidate(trial=trial, configuration=Configuration(()), plan=plan, binaries=binaries)
            for trial in (BASELINE, *range(given.entrants))
        ]
        template = planted(experiment)
        slow = lower(
            experiment, template, Configuration.of({"SLOWER": 1}), shapes.tune, bench.device()
        )
        built = compiler.compile(slow.builds)
        assert not isinstance(built, Rejected), built
        copies.append(
            Candidate(
                trial=given.entrants,
                configuration=Configuration.of({"SLOWER": 1}),
                plan=slow,
                binaries=built,
            )
        )
        setup = BenchSetup(experiment=experiment, baseline=copies[0], secret=secrets.randbits(63))
        prepared = bench.prepare(setup)
        assert not isinstance(prepared.result, Rejected), prepared.result
        for process in range(given.processes):
            confirmed = bench.confirm(ConfirmWork(process=process, finalists=tuple(copies[1:])))
            assert not confirmed.failed, confirmed.failed
            for sample in confirmed.samples:
                key = f"{list(SIZES)[sample.shape]}/{sample.cache}"
                times[key][sample.trial].append(sample.median_ns)
            print(f"process {process + 1} of {given.processes}", flush=True)
    data = {}
    for key, found in times.items():
        data[key] = [found[trial] for trial in (BASELINE, *range(given.entrants))]
        print(key)
        judge(data[key], found[given.entrants], (given.entrants + 1) * len(times))
    with tempfile.NamedTemporaryFile(dir=given.out.parent, delete=False) as building:
        building.write(gzip.compress(json.dumps(data).encode(), mtime=0))
    Path(building.name).replace(given.out)
    for key, entrants in data.items():
        spreads = [max(one) / min(one) - 1 for one in entrants]
        print(f"{key}: processes lie {', '.join(f'{spread:.2%}' for spread in spreads)} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
