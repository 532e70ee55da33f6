"""How often the bench rejects honest kernels: every bundled OpenCL experiment, many secret seeds.

Run as ``python -m tests.benchmarks.false_alarms [SEEDS]``. For each seed the baseline runs against
itself and a few random configurations of the template against it, all the way through the harder
checks of a first confirmation. Prints one line per experiment and exits with 1 if there was any
false alarm.
"""

import random
import sys
from pathlib import Path

from tests.workers.harness import Laboratory
from tuner.candidate import Candidate
from tuner.experiment.odd_shapes import every_shape
from tuner.plan import CellPlan
from tuner.space.lower import lower
from tuner.trial import Configuration, Rejected
from workers.bench.deadlines import Deadlines

ROOT = Path(__file__).parent.parent.parent
SPECS = [
    *sorted((ROOT / "deploy" / "experiments").glob("*/opencl.yaml")),
    *sorted((ROOT / "tests" / "experiments" / "data").glob("*/opencl.yaml")),
]
CONFIGURATIONS = 3


def configurations(laboratory: Laboratory, rng: random.Random) -> list[Candidate]:
    """Random configurations of its template, if any, that can run on every tune shape."""
    experiment, found = laboratory.experiment, []
    if experiment.template is None:
        return []
    shapes = experiment.shapes
    bindings = every_shape(experiment)
    while len(found) < CONFIGURATIONS:
        values = {name: rng.choice(v) for name, v in experiment.template.parameters.items()}
        chosen = Configuration.of(values)
        plan = lower(experiment, experiment.template, chosen, bindings, laboratory.device)
        if all(isinstance(cell, CellPlan) for cell in plan.cells[: len(shapes.tune)]):
            found.append(laboratory.compiled(len(found) + 1, plan))
    return found


def alarms(spec: Path, seed: int) -> list[str]:
    """Every rejection of an honest kernel under one secret seed."""
    laboratory = Laboratory(spec, secret=seed, deadlines=Deadlines())
    try:
        if isinstance(laboratory.prepared.result, Rejected):
            return [f"baseline: {laboratory.prepared.result.detail}"]
        candidates = configurations(laboratory, random.Random(seed))
        outcomes = [(c, laboratory.bench.run(c).outcome) for c in candidates]
        found = [f"{c.plan.builds[0].defines}: {o.detail}" for c, o in outcomes
                 if isinstance(o, Rejected)]  # fmt: skip
        confirmed = laboratory.confirmed(*candidates)
        found += [f"confirm: {reason.detail}" for _, reason in confirmed.failed]
        examined = laboratory.examined(*candidates)
        found += [f"examine: {reason.detail}" for _, reason in examined.failed]
        notes = {*laboratory.prepared.notes, *confirmed.notes} if seed == 1 else ()
        found += [f"note: {note}" for note in sorted(notes)]
        return found
    finally:
        laboratory.close()


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    total = 0
    for spec in SPECS:
        found = [alarm for seed in range(1, seeds + 1) for alarm in alarms(spec, seed)]
        notes = [text for text in found if text.startswith("note: ")]
        total += len(found) - len(notes)
        print(f"{spec.parent.name}: {seeds} seeds, {len(found) - len(notes)} false alarms")
        for text in found:
            print(f"  {text}", flush=True)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
