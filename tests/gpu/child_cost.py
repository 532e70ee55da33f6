"""What a bench child's requests cost on this GPU: milliseconds of each, on a small cold shape.

``python -m tests.gpu.child_cost [SPEC]`` prints a line of JSON. A confirmation is some thousand of
these requests.
"""

import itertools
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from tests.benchmarks.confirmation_cost import SPEC, finalists
from tuner.engine.work import BenchSetup
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.load import load_experiment
from tuner.plan import CellPlan
from workers.bench.deadlines import Deadlines
from workers.bench.device_bench import DeviceBench
from workers.bench.protocol import RunBurst
from workers.bench.supervisor import Supervisor
from workers.devices.staging import staged
from workers.elements import to_storage
from workers.inputs import fill

TIMES = 20
SECONDS = 60.0


def milliseconds(act: Callable[[], object]) -> float:
    """The median of a few calls."""
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - began))
    return round(float(np.median(taken)), 3)


def cost(spec: Path, folder: Path) -> dict[str, float]:
    """Milliseconds by kind of request."""
    experiment = load_experiment(spec)
    with closing(DeviceBench(experiment.kernel.language, 0)) as bench:
        baseline, _ = finalists(experiment, bench.device(), 1)
    setup = BenchSetup(experiment=experiment, baseline=baseline, secret=secrets.randbits(63))
    arguments = resolve_arguments(experiment, experiment.shapes.tune[0].symbols)
    rng = np.random.default_rng(setup.secret)
    contents: list[dict[str, str]] = [{}, {}]
    for number, argument in itertools.product(range(2), (a for a in arguments if a.kind == "in")):
        path = folder / f"{argument.name}.{number}.raw"
        to_storage(fill(argument, rng, "default", NotImplemented), argument).tofile(path)
        contents[number][argument.name] = str(path)
    (cell, *_) = baseline.plan.cells
    assert isinstance(cell, CellPlan)
    began = time.perf_counter()
    with closing(Supervisor(experiment.kernel.language, 0, Deadlines(), folder)) as server:
        server.describe()
        found = {"start": round(1e3 * (time.perf_counter() - began), 1)}
        size = sum(a.size for a in arguments if a.is_buffer)
        sets = server.rotation(size, "cold", 20, 100).sets
        began = time.perf_counter()
        handle = server.stage(staged(arguments, contents[0]), sets)
        found["stage"] = round(1e3 * (time.perf_counter() - began), 1)
        launchable = server.bind(server.load(baseline.binaries), cell, handle)
        orders = itertools.cycle([tuple(rng.permutation(sets).tolist()) for _ in range(2 * TIMES)])
        known, turn, single = next(orders), itertools.cycle(contents), itertools.count()

        def burst(order, count=1, poison=0x7F, refill=False, **more):
            if refill:
                server.refill(handle, next(turn))
            request = RunBurst(
                launchable=launchable, order=order, poison=poison, deadline=SECONDS, **more
            )
            return list(server.run_bursts([request] * count))

        burst(known)
        found["sets"] = sets
        found["one_launch"] = milliseconds(lambda: burst((0,)))
        found["one_launch_on_another_set"] = milliseconds(lambda: burst((next(single) % sets,)))
        found["five_in_one_request"] = milliseconds(lambda: burst((0,), 5))
        found["inspected_outputs_returned"] = milliseconds(lambda: burst((0,), inspect=0))
        found["telemetry"] = milliseconds(lambda: burst((0,), read_telemetry=True))
        found["refilled"] = milliseconds(lambda: burst((0,), refill=True))
        found["other_poison"] = milliseconds(lambda: burst((0,), poison=next(single) % 200))
        found["all_sets"] = milliseconds(lambda: burst(known))
        found["all_sets_in_another_order"] = milliseconds(lambda: burst(next(orders)))
    return found


def main() -> int:
    """Print the costs."""
    spec = Path(sys.argv[1]) if len(sys.argv) > 1 else SPEC
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(cost(spec, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
