"""``validate``: checks a spec, and tries its baseline, its reference and its space."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import typer

from agents.generation.corners import corners
from agents.settings import SECTIONS, agent_settings
from cluster.cli.console import say
from cluster.commands.baseline_check import by_size, elements, try_baseline
from cluster.commands.find_spec import find_spec, machine_has_gpu, tunable
from cluster.commands.validation_findings import Attempt, Findings, ReferenceTime
from cluster.fleets.local import choose
from cluster.runs.budget import checker_bytes
from cluster.runs.model_choice import check_models, choose_model
from tuner.backends.registry import traits_of
from tuner.candidate import BASELINE
from tuner.device import Device
from tuner.drafts.draft_spec import unread_guesses
from tuner.engine.candidates import Candidates
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.check.device import require_launches, require_memory
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, Template
from tuner.experiment.tolerances import comparison_rules
from tuner.report.estimate import Estimate, estimate
from tuner.report.wrapping import fitting
from tuner.space.feasible import FeasibleSet, feasible_set
from tuner.space.lower import Lowering
from tuner.trial import Configuration, Infeasible, Rejected, Stage
from workers.backends.registry import device_for_target
from workers.compilers.worker import CompileWorker
from workers.devices.discover import list_devices
from workers.reference import REFERENCE_SECONDS
from workers.reference_check import reference_seconds


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
            experiment = tunable(experiment)
        except SpecError as problem:
            if experiment.template is not None:
                raise
            nothing_to_vary = str(problem)
    model, index, why_not = _device(experiment, target, device)
    checks = [partial(check_models, path, experiment, asked, None)]
    if model is not None:
        checks += [partial(each, experiment, model) for each in (require_launches, require_memory)]
    checks.append(partial(_require_limits, experiment, model))
    _all(checks)
    tolerances = comparison_rules(experiment)
    space = None
    if model is not None and experiment.template is not None:
        space = feasible_set(experiment, experiment.template, model)
    attempts: list[Attempt] = []
    reference = None if fast or experiment.reference is None else _try_reference(experiment)
    tried = None
    if model is not None and not fast:
        points = () if space is None else corners(space)
        attempts = _compile(experiment, points, model)
        if index is not None and attempts[0].problem is None:
            tried = try_baseline(experiment, model, index, points)
    expected = None
    if model is not None and not nothing_to_vary:
        expected = _estimate(experiment, model, space, rounds)
    findings = Findings(
        experiment=experiment,
        device=model,
        no_device=why_not,
        rounds=rounds,
        model=asked,
        guesses=unread_guesses(path.read_text(encoding="utf-8")),
        tolerances=tolerances,
        space=space,
        estimate=expected,
        reference=reference,
        attempts=attempts,
        baseline=tried,
        nothing_to_vary=nothing_to_vary,
    )
    if as_json:
        typer.echo(json.dumps(findings.document(), indent=2))
    else:
        _say(findings.lines())
    findings.require_none_wrong()
    if not as_json:
        _say([findings.verdict])


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(fitting(line, sys.stdout))


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


def _require_limits(experiment: Experiment, device: Device | None) -> None:
    """Raise :class:`SpecError` if a launch of the baseline exceeds a limit of the device.

    Without a device, the limits on a block are those of an architecture: all of them have the same.
    """
    language = experiment.kernel.language
    if device is None and (target := traits_of(language).example_target):
        most = 2**63
        device = replace(
            device_for_target(language, target),
            name="every device",
            max_grid=(most, most, most),
            max_shared_bytes_per_block=most,
        )
    if device is None:
        return
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    plan = Lowering(experiment, None, shapes, device).plan(Configuration(()))
    for shape, cell in zip(shapes, plan.cells, strict=True):
        if isinstance(cell, Infeasible):
            raise SpecError(f"kernel.launch at {shape}: {cell.reason}")


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
    words = f"calling the reference at {least}; a call may take {REFERENCE_SECONDS:.0f} s"
    say(words)
    return ReferenceTime(
        shape=str(least),
        seconds=reference_seconds(experiment, least),
        largest=str(most),
        times_larger=elements(experiment, most) / elements(experiment, least),
    )


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


def _compile(
    experiment: Experiment, points: Sequence[Configuration], device: Device
) -> list[Attempt]:
    """Compile the baseline and, if that compiles, some configurations."""
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    todo: list[tuple[Template | None, Configuration]] = [(None, Configuration(()))]
    todo.extend((experiment.template, point) for point in points)
    attempts: list[Attempt] = []
    candidates = Candidates(experiment, device)
    with CompileWorker(device) as compiler:
        for number, (template, configuration) in enumerate(todo, start=BASELINE):
            name = "the baseline" if template is None else str(configuration)
            place = f"{len(attempts) + 1}/{len(todo)}"
            say(f"compiling {place}: {name}")
            begun = candidates.begin(number, template, configuration, shapes)
            made = candidates.compile_now(compiler.compile, begun)
            problem = made.detail if isinstance(made, Rejected) else None
            over_limit = isinstance(made, Rejected) and made.stage is Stage.LIMITS
            attempts.append(Attempt(name, problem, over_limit))
            if template is None and problem:
                break
    return attempts
