"""Checks the baseline of a spec on a device, outside a run: does it compute what it should?"""

import secrets

from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.engine.candidates import Candidates
from tuner.engine.work import BenchSetup
from tuner.errors import SpecError
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.trial import Configuration, Rejected
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker


def baseline_problem(
    experiment: Experiment, device: Device, compiler: CompileWorker, bench: DeviceBench
) -> str | None:
    """Why the baseline cannot be prepared on the experiment's shapes; ``None`` if it can.

    Preparing compiles it, launches it on every shape with all checks, compares it with the
    reference, and times it.
    """
    shapes = every_shape(experiment)
    candidates = Candidates(experiment, device)
    begun = candidates.begin(BASELINE, None, Configuration(()), shapes)
    baseline = candidates.compile_now(compiler.compile, begun)
    if isinstance(baseline, Rejected):
        return baseline.detail
    setup = BenchSetup(experiment=experiment, baseline=baseline, secret=secrets.randbits(63))
    try:
        result = bench.prepare(setup).result
    except SpecError as error:
        return str(error)
    if not isinstance(result, Rejected):
        return None
    where = "" if result.shape is None else f"{shapes[result.shape]}: "
    return f"{where}{result.detail}"
