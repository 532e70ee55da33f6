"""One configuration compiled by a child of this process, for commands that need no fleet."""

from collections.abc import Sequence

from tuner.device import Device
from tuner.engine.fleet import Candidate
from tuner.experiment.model import Experiment, ShapeBinding, Template
from tuner.space.limits import over_limit, within_limits
from tuner.space.lower import lower
from tuner.trial import Configuration, Rejected
from workers.compilers.worker import CompileWorker


def compiled(
    compiler: CompileWorker,
    experiment: Experiment,
    template: Template | None,
    configuration: Configuration,
    shapes: Sequence[ShapeBinding],
    device: Device,
    *,
    trial: int,
) -> Candidate | Rejected:
    """What a bench needs of a configuration (of the baseline, without ``template``), or why not.

    Args:
        compiler: for the model of ``device``.
        experiment: whose kernel it is a variant of.
        template: whose configuration it is.
        configuration: its parameters' values.
        shapes: those it is to run on.
        device: whose limits hold.
        trial: the number that it goes by.
    """
    plan = lower(experiment, template, configuration, shapes, device)
    result = over_limit(plan, device) or compiler.compile(plan.builds)
    result = within_limits(plan, device, result)
    if isinstance(result, Rejected):
        return result
    return Candidate(trial=trial, configuration=configuration, plan=plan, binaries=result)
