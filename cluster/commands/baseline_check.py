"""Checks a spec's baseline, and a configuration, on a device: do they compute what they should?

For commands, outside a run.
"""

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from cluster.cli.console import say
from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.engine.candidates import Candidates
from tuner.engine.work import BenchSetup
from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.experiment.odd_shapes import every_shape, odd_shapes
from tuner.results.notes import wrong_remedy
from tuner.results.rejections import REMEDIES
from tuner.trial import Code, Configuration, Infeasible, Rejected, Stage
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker


@dataclass(frozen=True, slots=True)
class BaselineProblem:
    """Why the baseline cannot be used, and on which shape that was seen, if on one."""

    detail: str
    shape: ShapeBinding | None = None
    code: Code | None = None

    def __str__(self) -> str:
        return self.detail if self.shape is None else f"{self.shape}: {self.detail}"


def baseline_problem(
    experiment: Experiment, device: Device, compiler: CompileWorker, bench: DeviceBench
) -> BaselineProblem | None:
    """Why the baseline cannot be prepared on the experiment's shapes; ``None`` if it can.

    Preparing compiles it, launches it on every shape with all checks, compares it with the
    reference, and times it.
    """
    shapes = every_shape(experiment)
    candidates = Candidates(experiment, device)
    begun = candidates.begin(BASELINE, None, Configuration(()), shapes)
    baseline = candidates.compile_now(compiler.compile, begun)
    if isinstance(baseline, Rejected):
        return BaselineProblem(baseline.detail)
    setup = BenchSetup(experiment=experiment, baseline=baseline, secret=secrets.randbits(63))
    try:
        result = bench.prepare(setup).result
    except SpecError as error:
        return BaselineProblem(str(error))
    if not isinstance(result, Rejected):
        return None
    shape = None if result.shape is None else shapes[result.shape]
    return BaselineProblem(result.detail, shape, result.code)


@dataclass(frozen=True, slots=True)
class ConfigurationTried:
    """A configuration that was launched and compared; why it was rejected, if so.

    ``shapes`` are those it was tried on, or the one on which it was rejected.
    """

    configuration: str
    shapes: str
    problem: str | None

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.configuration} equals the baseline, at {self.shapes}"
        return (
            f"{self.configuration} fails its checks at {self.shapes}: {self.problem}. A run "
            "rejects such a configuration and goes on"
        )


@dataclass(frozen=True, slots=True)
class BaselineTried:
    """What the checks of the baseline found on the smallest shape and one just below it.

    ``problem`` ends a run, too; of a ``warning`` a run makes a note, and goes on. ``configuration``
    is one that was checked too, if one was.
    """

    shapes: str
    compared: bool
    problem: str | None
    warning: str | None = None
    configuration: ConfigurationTried | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a run goes on in spite of."""
        tried = self.configuration
        failed = str(tried) if tried and tried.problem else None
        return tuple(filter(None, (self.warning, failed)))

    def __str__(self) -> str:
        if self.problem is not None:
            return f"the baseline cannot be used: {self.problem}"
        to = "equals the reference" if self.compared else "runs; there is no reference to compare"
        return f"the baseline {to}, at {self.shapes}"


def try_baseline(
    experiment: Experiment, device: Device, index: int, configurations: Sequence[Configuration]
) -> BaselineTried:
    """Launch and check the baseline, and one configuration, on a device of this machine.

    At the smallest shape, and at sizes just below it: there a missing bounds check shows. Of the
    ``configurations``, the first that can be launched at the smallest shape; where the baseline
    fails at the sizes below, at the smallest shape alone.
    """
    least, *_ = by_size(experiment)
    alone = replace(experiment, shapes=replace(experiment.shapes, tune=(least,), held_out=()))
    most = elements(alone, least)
    below = [odd for odd in odd_shapes(alone) if elements(alone, odd) <= most][:1]
    shapes = " and ".join(map(str, (least, *below)))
    say(f"running the baseline at {shapes}")
    small = replace(
        alone,
        search=replace(experiment.search, seeds=()),
        measure=replace(experiment.measure, warmup=1, repeats=3, cache="hot"),
    )
    both = replace(small, shapes=replace(small.shapes, tune=(least, *below)))
    compared, backend = experiment.reference is not None, experiment.kernel.language
    with CompileWorker(device) as compiler, closing(DeviceBench(backend, index)) as bench:
        warning = None
        problem = baseline_problem(both, device, compiler, bench)
        if problem is not None and problem.shape in below:
            warning = (
                f"your kernel fails its checks at {problem}; shapes.domain has this shape: "
                f"{wrong_remedy(problem.code)}. A run goes on, with this as a note"
            )
            shapes, both = str(least), small
            problem = baseline_problem(small, device, compiler, bench)
        found = None if problem is None else str(problem)
        tried = BaselineTried(shapes, compared, found, warning)
        if problem is not None:
            return tried
        one = _try_configuration(both, device, compiler, bench, configurations)
        return replace(tried, configuration=one)


def _try_configuration(
    experiment: Experiment,
    device: Device,
    compiler: CompileWorker,
    bench: DeviceBench,
    configurations: Sequence[Configuration],
) -> ConfigurationTried | None:
    """Check the first that can be launched at the first tune shape, on a bench that is prepared.

    It is checked at the others, too, if its constraints hold there.
    """
    candidates, tune = Candidates(experiment, device), experiment.shapes.tune
    for number, configuration in enumerate(configurations):
        begun = candidates.begin(number, experiment.template, configuration, tune)
        made = candidates.compile_now(compiler.compile, begun)
        if isinstance(made, Rejected) or isinstance(made.plan.cells[0], Infeasible):
            continue
        cells = zip(tune, made.plan.cells, strict=True)
        shapes = " and ".join(str(one) for one, cell in cells if not isinstance(cell, Infeasible))
        name = str(configuration)
        say(f"running {name} at {shapes}")
        outcome = bench.run(made).outcome
        if isinstance(outcome, Rejected) and outcome.stage is not Stage.TIME:
            where = shapes if outcome.shape is None else str(tune[outcome.shape])
            problem = f"{outcome.detail}; hint: {REMEDIES[outcome.code]}"
            return ConfigurationTried(name, where, problem)
        return ConfigurationTried(name, shapes, None)  # too few launches to judge its time
    return None


def elements(experiment: Experiment, binding: ShapeBinding) -> int:
    """Elements of all buffers on a shape."""
    arguments = resolve_arguments(experiment, binding.symbols)
    return sum(argument.elements for argument in arguments if argument.is_buffer)


def by_size(experiment: Experiment) -> list[ShapeBinding]:
    """Tune and held-out shapes, the smallest first."""
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    return sorted(shapes, key=lambda binding: elements(experiment, binding))
