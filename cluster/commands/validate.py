"""``validate``: checks a spec, and tries its baseline, its reference and its space."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import typer

from agents.generation.corners import corners
from agents.settings import SECTIONS, agent_settings
from cluster.baseline_check import BaselineTried, by_size, elements, try_baseline
from cluster.commands.find_spec import find_spec, machine_has_gpu, tunable
from cluster.fleets.local import choose
from cluster.runs.budget import checker_bytes
from cluster.runs.model_choice import check_models, choose_model
from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.drafts.draft_spec import guesses_left, unread_guesses
from tuner.engine.candidates import Candidates
from tuner.errors import EnvironmentProblem, NothingValid, SpecError
from tuner.experiment.check.device import require_launches, require_memory
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, Template
from tuner.experiment.tolerances import comparison_rules
from tuner.report.estimate import Estimate, estimate
from tuner.report.wrapping import fitting
from tuner.space.feasible import FeasibleSet, feasible_set
from tuner.trial import Configuration, Rejected, Stage
from workers.backends.registry import device_for_target
from workers.compilers.worker import CompileWorker
from workers.devices.discover import list_devices
from workers.reference_check import reference_seconds

SLOW_SECONDS = 10.0
"""Expected seconds of a reference at the largest shape above which advice is given."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A configuration that was compiled, and why that failed, if it did.

    One that is over a limit of the device is none of the template's faults: a run passes it over.
    """

    configuration: str
    problem: str | None
    over_limit: bool = False


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """How long the reference took at the smallest shape, and how much larger the largest is."""

    shape: str
    seconds: float
    largest: str
    times_larger: float

    def __str__(self) -> str:
        expected = self.seconds * self.times_larger
        text = f"reference: {self.seconds:.2g} s at {self.shape}"
        if self.times_larger > 1:
            text += f", about {expected:.2g} s at {self.largest} if it grows with the elements"
        if expected > SLOW_SECONDS:
            text += (
                "; a run calls it several times for each shape: vectorise it with NumPy, or use "
                "smaller shapes"
            )
        return text


def validate(
    spec: str, *, target: str | None, fast: bool, device: str | None, as_json: bool
) -> None:
    """Print the tolerances, space and estimate of a correct spec, for a device or an architecture.

    Raises:
        SpecError: all errors of the spec; or its space is empty, or its budget too small; or, once
            all else was tried, there is neither a template nor anything to vary in the kernel.
        ModelUnavailable: the spec wants a transcript, and there is none.
        NothingValid: unless ``fast``, something did not compile, or the baseline fails its checks
            on a device of this machine.
    """
    path = find_spec(spec, lambda: target is not None or machine_has_gpu())
    experiment = load_experiment(path, SECTIONS)
    asked = choose_model(path, experiment, None)
    settings = agent_settings(experiment)
    rounds = settings.rounds if settings and asked != "none" else 0
    nothing_to_vary = ""
    if experiment.template is not None or not rounds:
        try:
            experiment = tunable(experiment)[0]
        except SpecError as problem:
            if experiment.template is not None:
                raise
            nothing_to_vary = str(problem)
    model, index, why_not = _device(experiment, target, device)
    checks = [partial(check_models, path, experiment, asked, None)]
    if model is not None:
        checks += [partial(each, experiment, model) for each in (require_launches, require_memory)]
    _all(checks)
    tolerances = comparison_rules(experiment)
    guesses = unread_guesses(path.read_text(encoding="utf-8"))
    space = None
    if model is not None and experiment.template is not None:
        space = feasible_set(experiment, experiment.template, model)
    attempts: list[Attempt] = []
    reference = None if fast or experiment.reference is None else _try_reference(experiment)
    tried = None
    if model is not None and not fast:
        attempts = _compile(experiment, space, model)
        if index is not None and attempts[0].problem is None:
            tried = try_baseline(experiment, model, index)
    expected = None
    if model is not None and not nothing_to_vary:
        expected = _estimate(experiment, model, space, rounds)
    if as_json:
        report = {
            "experiment": experiment.name,
            "device": None if model is None else model.name,
            "binary": experiment.kernel.binary and experiment.kernel.binary.file.sha256,
            "guesses": guesses,
            "tolerances": tolerances,
            "space": None if space is None else _space_report(space),
            "estimate": expected and asdict(expected),
            "reference": reference and asdict(reference),
            "compiled": [asdict(one) for one in attempts],
            "baseline": tried and asdict(tried),
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        _say(experiment.name)
        if experiment.kernel.binary:
            _say(f"  {_binary(experiment)}")
        for output, bound in tolerances.items():
            _say(f"  {output}: {bound}")
        if experiment.cost is None or experiment.cost.bytes is None:
            _say("  cost.bytes is not given: the report cannot compare with the roofline")
        if unaligned := _unaligned(experiment):
            _say(f"  {unaligned}")
        if reference is not None:
            _say(f"  {reference}")
        if space is not None and model is not None:
            _print_space(space, model)
        elif model is None:
            _say(f"space: not counted, and nothing compiled: {why_not}; or pass --target")
        if rounds:
            aside = "; --model none searches the spec's own" if experiment.template else ""
            _say(f"space of a run: unknown until {asked} writes a template{aside}")
        if expected is not None:
            agents = f", in {rounds} rounds with model {asked}" if rounds else ""
            _say(f"estimated run: {expected}{agents}")
        for line in _compiled(attempts):
            _say(f"  {line}")
        if tried is not None and tried.problem is None:
            _say(f"  {tried}")
        if tried is not None and tried.warning is not None:
            _say(f"  warning: {tried.warning}")
    failed = [one for one in attempts if one.problem and not one.over_limit]
    if attempts and attempts[0].problem:
        raise NothingValid("the baseline did not compile; nothing else was tried")
    if tried is not None and tried.problem is not None:
        look = f"; {guesses_left(guesses)}" if guesses else ""
        raise NothingValid(
            f"{tried}; check kind, shape, launch and values against your kernel{look}"
        )
    if failed:
        raise NothingValid(f"{len(failed)} of {len(attempts)} did not compile")
    if nothing_to_vary:
        raise SpecError(f"`run` will refuse this spec: {nothing_to_vary}")
    if expected is not None:
        expected.require_time()
    if not as_json:
        _say(f"{experiment.name}: {_verdict(guesses, attempts, tried)}")


def _all(checks: Sequence[Callable[[], None]]) -> None:
    """Make every check; raise :class:`SpecError` with all that they find."""
    found: list[SpecError] = []
    for check in checks:
        try:
            check()
        except SpecError as problem:
            found.append(problem)
    if len(found) == 1:
        raise found[0]
    if found:
        raise SpecError("\n".join(map(str, found)))


def _compiled(attempts: Sequence[Attempt]) -> Iterator[str]:
    """What compiled, and each problem once with all configurations that have it."""
    for one in attempts:
        if one.problem is None:
            yield f"compiled {one.configuration}: ok"
    for problem in dict.fromkeys(one.problem for one in attempts if one.problem):
        having = [one.configuration for one in attempts if one.problem == problem]
        more = f" and {len(having) - 1} more" if len(having) > 1 else ""
        limit = any(one.over_limit for one in attempts if one.problem == problem)
        yield f"{'over a limit' if limit else 'not compiled'}: {having[0]}{more}: {problem.strip()}"


def _unaligned(experiment: Experiment) -> str:
    """Advice on buffers of which the spec promises no alignment, so that no vector is loaded."""
    names = [
        one.name
        for one in experiment.arguments
        if one.kind in ("in", "out", "inout") and one.align is None
    ]
    if not names:
        return ""
    return (
        f"no align is given for {', '.join(names)}: templates cannot load or store vectors there. "
        "PyTorch, CuPy and cudaMalloc align to 16 bytes or more: write `align: 16` where your "
        "application passes whole buffers"
    )


def _verdict(
    guesses: tuple[int, ...], attempts: Sequence[Attempt], tried: BaselineTried | None
) -> str:
    """The last line: that nothing is wrong, with what was not checked."""
    skipped = " (nothing was compiled or run)"
    if attempts:
        skipped = "" if tried else " (compiled, not run)"
    warned = "a warning" if tried and tried.warning else ""
    left = " and ".join(filter(None, (warned, guesses_left(guesses) if guesses else "")))
    return f"no errors found{skipped}{f', but {left}' if left else ''}"


def _say(line: str) -> None:
    typer.echo(fitting(line, sys.stdout))


def _binary(experiment: Experiment) -> str:
    """What is known of a binary that is the baseline, and what checks the rest."""
    assert experiment.kernel.binary
    file = experiment.kernel.binary.file
    return (
        f"baseline: {file.name} (SHA-256 {file.sha256[:16]}…); {experiment.kernel.source.name} is "
        "read, not compiled. The binary's architecture is checked, and its entries, registers and "
        "shared memory where it tells them; a run begins by loading, launching and checking it"
    )


def _device(
    experiment: Experiment, target: str | None, wanted: str | None
) -> tuple[Device | None, int | None, str]:
    """The device to check against and its index, if it is there; or why there is none."""
    backend = experiment.kernel.language
    if target is not None:
        return device_for_target(backend, target), None, ""
    try:
        model, (first, *_) = choose(list_devices((backend,)), backend, wanted)
    except EnvironmentProblem as problem:
        if wanted is not None:
            raise
        return None, None, str(problem)
    return model, first, ""


def _try_reference(experiment: Experiment) -> ReferenceTime:
    """Call the reference at the smallest shape."""
    shapes = by_size(experiment)
    least, most = shapes[0], shapes[-1]
    typer.echo(f"kernelwright: calling the reference at {least}", err=True)
    return ReferenceTime(
        shape=str(least),
        seconds=reference_seconds(experiment, least),
        largest=str(most),
        times_larger=elements(experiment, most) / elements(experiment, least),
    )


def _space_report(space: FeasibleSet) -> dict[str, object]:
    return {
        "configurations": space.size,
        "sampled": None if space.estimate is None else len(space),
        "general": _general(space),
        "cartesian": space.cartesian,
        "rejected": {one.condition: one.points for one in space.rejections},
    }


def _general(space: FeasibleSet) -> int:
    """How many configurations are feasible on every tune shape; an estimate from a sample."""
    return round(np.count_nonzero(space.mask.all(axis=1)) / len(space.mask) * space.size)


def _print_space(space: FeasibleSet, device: Device) -> None:
    about = "" if space.estimate is None else "about "
    _say(
        f"space on {device.name}: {about}{space.size:,} of {space.cartesian:,} configurations are "
        f"feasible on some tune shape, {about}{_general(space):,} on every tune shape"
    )
    if space.estimate is not None:
        _say(f"  too many to list: the search begins with a sample of {len(space):,}")
    for rejection in space.rejections:
        _say(f"  {rejection.points:,} rejected by {rejection.condition}")


def _estimate(
    experiment: Experiment, device: Device, space: FeasibleSet | None, rounds: int
) -> Estimate:
    """The estimate for one such device, compiling on this machine's cores."""
    return estimate(
        experiment,
        device,
        None if rounds or space is None else space.size,
        compile_slots=max(1, (os.cpu_count() or 2) - 1),
        bench_slots=1,
        rounds=max(1, rounds),
        checker_bytes=checker_bytes(device),
    )


def _compile(experiment: Experiment, space: FeasibleSet | None, device: Device) -> list[Attempt]:
    """Compile the baseline and, if that compiles, the corners of the space."""
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    todo: list[tuple[Template | None, Configuration]] = [(None, Configuration(()))]
    if space is not None:
        todo.extend((experiment.template, corner) for corner in corners(space))
    attempts: list[Attempt] = []
    candidates = Candidates(experiment, device)
    with CompileWorker(device) as compiler:
        for number, (template, configuration) in enumerate(todo, start=BASELINE):
            name = "the baseline" if template is None else str(configuration)
            place = f"{len(attempts) + 1}/{len(todo)}"
            typer.echo(f"kernelwright: compiling {place}: {name}", err=True)
            begun = candidates.begin(number, template, configuration, shapes)
            made = candidates.compile_now(compiler.compile, begun)
            problem = made.detail if isinstance(made, Rejected) else None
            over_limit = isinstance(made, Rejected) and made.stage is Stage.LIMITS
            attempts.append(Attempt(name, problem, over_limit))
            if template is None and problem:
                break
    return attempts
