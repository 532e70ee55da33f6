"""Records what fresh processes of one GPU say of one kernel: ``python -m tests.gpu.record OUT``.

Times copies of a bundled baseline against each other by the bench's own confirmation, at three
sizes, hot and cold, and writes the per-process medians to ``OUT`` (``.json.gz``), by size and cache
state: a list for each entrant with one time for each process. Put it into
``tests/tuner/report/data/`` and the verdicts are tested on it.
"""

import argparse
import gzip
import json
import secrets
import sys
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tuner.fleet import BASELINE, BenchSetup, Candidate, ConfirmJob
from tuner.space.lower import lower
from tuner.spec.experiment import ShapeBinding
from tuner.spec.load import load_experiment
from tuner.trial import Configuration, Rejected
from workers.bench.bench import Bench
from workers.compilers.worker import CompileWorker

SPEC = Path(__file__).parents[2] / "deploy/experiments/silu_and_mul/cuda.yaml"
SIZES = {
    "below 4 MB": {"tokens": 16, "d": 11008},
    "4 to 60 MB": {"tokens": 512, "d": 11008},
    "above 60 MB": {"tokens": 2048, "d": 14336},
}


def main() -> int:
    """Record; the exit code says whether every process answered for every entrant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=30)
    parser.add_argument("--entrants", type=int, default=3)
    given = parser.parse_args()
    experiment = load_experiment(SPEC)
    shapes = replace(
        experiment.shapes, tune=tuple(map(ShapeBinding, SIZES.values())), held_out=(), domain=()
    )
    experiment = replace(experiment, shapes=shapes)
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with closing(Bench("cuda", 0)) as bench, CompileWorker(bench.device()) as compiler:
        plan = lower(experiment, None, Configuration(()), shapes.tune, bench.device())
        binaries = compiler.compile(plan.builds)
        assert not isinstance(binaries, Rejected), binaries
        copies = [
            Candidate(trial=trial, configuration=Configuration(()), plan=plan, binaries=binaries)
            for trial in (BASELINE, *range(given.entrants))
        ]
        setup = BenchSetup(experiment=experiment, baseline=copies[0], secret=secrets.randbits(63))
        prepared = bench.prepare(setup)
        assert not isinstance(prepared.result, Rejected), prepared.result
        for process in range(given.processes):
            confirmed = bench.confirm(ConfirmJob(process=process, finalists=tuple(copies[1:])))
            assert not confirmed.failed, confirmed.failed
            for sample in confirmed.samples:
                key = f"{list(SIZES)[sample.shape]}/{sample.cache}"
                times[key][sample.trial].append(sample.median_ns)
            print(f"process {process + 1} of {given.processes}", flush=True)
    data = {key: [found[trial] for trial in sorted(found)] for key, found in times.items()}
    with tempfile.NamedTemporaryFile(dir=given.out.parent, delete=False) as building:
        building.write(gzip.compress(json.dumps(data).encode(), mtime=0))
    Path(building.name).replace(given.out)
    for key, entrants in data.items():
        spreads = [max(one) / min(one) - 1 for one in entrants]
        print(f"{key}: processes lie {', '.join(f'{spread:.2%}' for spread in spreads)} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
