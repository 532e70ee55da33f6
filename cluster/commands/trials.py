"""``trial``: compile, check and time one configuration on this machine."""

import json
import re
import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace

import typer

from agents.settings import SECTIONS
from cluster.commands.find_spec import find_spec, machine_has_gpu, tunable
from cluster.fleets.local import choose
from tuner.candidate import BASELINE, Candidate
from tuner.engine.candidates import Candidates
from tuner.engine.work import BenchSetup
from tuner.errors import NothingValid, SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, ShapeBinding, Template
from tuner.plan import CellPlan
from tuner.printable import counted
from tuner.results.rejections import REMEDIES, baseline_rejection
from tuner.trial import Configuration, Full, Infeasible, Measured, Outcome, Rejected, Value
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker
from workers.devices.discover import list_devices


def trial(
    spec: str, *, assignments: Sequence[str], shape: str | None, device: str | None, as_json: bool
) -> None:
    """Measure one configuration on this machine, beside the baseline in the same child.

    Raises:
        SpecError: a parameter or symbol is missing or unknown, or has no such value.
        NothingValid: the baseline or the configuration was rejected.
    """
    experiment = tunable(load_experiment(find_spec(spec, machine_has_gpu), SECTIONS))
    template = experiment.template
    assert template is not None, "it is tunable"
    if shape is not None:
        tune = (ShapeBinding(_symbols(experiment, shape)),)
        experiment = replace(experiment, shapes=replace(experiment.shapes, tune=tune, held_out=()))
    configuration = _configuration(template, assignments)
    backend = experiment.kernel.language
    model, indices = choose(list_devices((backend,)), backend, device)
    with CompileWorker(model) as compiler, closing(DeviceBench(backend, indices[0])) as bench:
        candidates = Candidates(experiment, model)
        shapes = experiment.shapes
        begun = candidates.begin(
            BASELINE, None, Configuration(()), (*shapes.tune, *shapes.held_out)
        )
        baseline = _runnable("the baseline", candidates.compile_now(compiler.compile, begun))
        begun = candidates.begin(0, template, configuration, shapes.tune)
        candidate = _runnable(str(configuration), candidates.compile_now(compiler.compile, begun))
        setup = BenchSetup(experiment=experiment, baseline=baseline, secret=secrets.randbits(63))
        prepared = bench.prepare(setup)
        if isinstance(prepared.result, Rejected):
            why = baseline_rejection(prepared.result, experiment)
            raise NothingValid(f"the baseline was rejected: {_reason(why)}")
        outcome = bench.run(candidate).outcome
    _show(experiment, configuration, outcome, as_json=as_json)
    if isinstance(outcome, Rejected):
        where = "" if outcome.shape is None else f" at {experiment.shapes.tune[outcome.shape]}"
        hint = f"; hint: {REMEDIES[outcome.code]}"
        raise NothingValid(f"{configuration} was rejected{where}: {_reason(outcome)}{hint}")


def _runnable(what: str, made: Candidate | Rejected) -> Candidate:
    if isinstance(made, Rejected):
        raise NothingValid(f"{what} was rejected: {_reason(made)}")
    reasons = {cell.reason for cell in made.plan.cells if isinstance(cell, Infeasible)}
    if not any(isinstance(cell, CellPlan) for cell in made.plan.cells):
        raise NothingValid(f"{what} cannot run on any shape: {'; '.join(sorted(reasons))}")
    return made


def _configuration(template: Template, assignments: Sequence[str]) -> Configuration:
    given = _given(assignments, "--set")
    if unknown := sorted(given.keys() - template.parameters.keys()):
        known = ", ".join(template.parameters)
        raise SpecError(f"--set {unknown[0]}: no such parameter; parameters: {known}")
    values: dict[str, Value] = {}
    for name, allowed in template.parameters.items():
        texts = {
            str(value).lower() if isinstance(value, bool) else str(value): value
            for value in allowed
        }
        if name not in given:
            raise SpecError(f"--set {name}=… is missing; values: {', '.join(texts)}")
        text = given[name].lower() if given[name].lower() in ("true", "false") else given[name]
        if text not in texts:
            raise SpecError(f"--set {name}={text}: not one of its values: {', '.join(texts)}")
        values[name] = texts[text]
    return Configuration.of(values)


def _symbols(experiment: Experiment, text: str) -> dict[str, Value]:
    given = _given(text.split(","), "--shape")
    example = experiment.shapes.tune[0].symbols
    if given.keys() != example.keys():
        wanted = ",".join(f"{name}=…" for name in example)
        raise SpecError(f"--shape {text}: needs exactly {wanted}")
    symbols: dict[str, Value] = {}
    for name, value in given.items():
        if isinstance(example[name], str):
            symbols[name] = value
        elif re.fullmatch("[1-9][0-9]{0,12}", value):
            symbols[name] = int(value)
        else:
            raise SpecError(f"--shape {name}={value[:20]}: not an integer from 1 to 10**13 - 1")
    return symbols


def _given(texts: Sequence[str], option: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise SpecError(f"{option} {text}: write NAME=VALUE")
        if name in given:
            raise SpecError(f"{option} {text}: {name} is already {given[name]}")
        given[name] = value
    return given


def _show(
    experiment: Experiment, configuration: Configuration, outcome: Outcome, *, as_json: bool
) -> None:
    shapes = [str(binding) for binding in experiment.shapes.tune]
    if as_json:
        report = {"configuration": configuration.as_dict(), "shapes": shapes, **asdict(outcome)}
        typer.echo(json.dumps(report, indent=2))
    elif isinstance(outcome, Measured):
        typer.echo(f"{experiment.name}: {configuration}")
        for shape, cell in zip(shapes, outcome.cells, strict=True):
            if isinstance(cell, Full):
                took = f"{cell.median_ns / 1000:.2f} µs"
                baseline = f"baseline {cell.baseline_ns / 1000:.2f} µs"
                if cell.energy:
                    took += f", {cell.energy.millijoules:.4g} mJ"
                    baseline += f", {cell.energy.baseline_mj:.4g} mJ"
                near = f"half of them within {cell.mad_ns / 1000:.2f} µs"
                of = f"median of {counted(cell.samples, 'timing')} in one process, {near}"
                typer.echo(f"  {shape}: {took}, {baseline}, {1 / cell.ratio:.2f}× ({of})")
            elif isinstance(cell, Infeasible):
                typer.echo(f"  {shape}: infeasible: {cell.reason}")


def _reason(rejected: Rejected) -> str:
    return f"{rejected.stage}: {rejected.code}: {rejected.detail}"
