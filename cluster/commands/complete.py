"""``complete``: a model writes what a draft spec lacks; what it wrote is tried, then written."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.completion import CompletionTask, complete_spec, completion_asker, open_guesses
from agents.llm.port import ModelUnavailable
from agents.replies import GeneratedCompletion
from agents.rounds_summary import STEPS
from agents.settings import SECTIONS, AgentSettings, agent_settings
from agents.step_journal import StepFiles, Steps
from agents.verdict import Refused
from cluster.cli.console import Show, display, say
from cluster.commands.baseline_check import baseline_problem
from cluster.commands.captures import AFTER
from cluster.fleets.local import choose
from cluster.runs.model_choice import (
    TRANSCRIPT,
    ModelAccess,
    check_endpoint,
    check_models,
    choose_model,
    keep_transcript,
    open_model,
)
from cluster.settings import take_keys
from tuner.drafts.captured_spec import result_file
from tuner.drafts.completed_spec import CompletedFields, completed_text
from tuner.drafts.draft_spec import unread_guesses
from tuner.errors import EnvironmentProblem, NothingValid, SpecError
from tuner.experiment.arguments import ResolvedArgument, resolve_arguments
from tuner.experiment.contents import FromFile
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.files import make_folder
from tuner.printable import counted
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker
from workers.devices.discover import list_devices
from workers.elements import is_float, numpy_dtype
from workers.inputs import fill
from workers.reference import ReferenceProcess
from workers.reference_check import RecordedCase, reference_problem


def complete(
    spec: Path,
    *,
    model: str | None,
    allow_endpoint: list[str] | None,
    output: Path | None,
    device: str | None,
    exit_when_waiting: bool,
) -> None:
    """Complete a draft spec and write the result beside it; the draft is kept.

    Raises:
        SpecError: the spec is not correct, or a file to be written exists.
        ModelUnavailable: no model is named, or it gives no reply; the guesses stay marked.
        NothingValid: no answer of the model passed the checks.
    """
    keys = take_keys()  # before any child starts
    experiment = load_experiment(spec, SECTIONS)
    text = spec.read_text(encoding="utf-8")
    guesses = unread_guesses(text)
    written = output or spec.with_name(f"{spec.stem}.completed.yaml")
    function = written.with_suffix(".py")
    if written.parent.resolve() != spec.parent.resolve():
        raise SpecError(f"--output {written}: the completed spec must lie beside {spec}")
    for path in (written, function):
        if path.exists():
            raise SpecError(f"{path} exists already: delete it, or name another with --output")
    beside = spec.with_name(f"completion_{experiment.kernel.language}.jsonl")
    name = choose_model(spec, experiment, model, beside)
    if name == "none":
        lines = ", ".join(map(str, guesses)) or "none"
        raise ModelUnavailable(
            f"no model is named: give --model; guesses stay marked in {spec} (lines: {lines})"
        )
    endpoints = tuple(allow_endpoint or ())
    check_endpoint(spec, experiment, name, endpoints)
    check_models(spec, experiment, name, model)
    access = ModelAccess(keys=keys, endpoints=endpoints, exit_when_waiting=exit_when_waiting)
    folder = spec.with_name(f"{spec.stem}.complete")
    make_folder(folder)
    if name == "replay":
        (folder / TRANSCRIPT).write_bytes(beside.read_bytes())
    with display() as show, closing(_Trial(experiment, device, show)) as trial:
        task = CompletionTask(
            experiment=experiment,
            file=function.name,
            facts=trial.facts,
            guesses=open_guesses(text, guesses),
        )
        found = asyncio.run(_asked(folder, name, task, trial, access, show))
        verified = trial.verified
    if isinstance(found, Refused):
        raise NothingValid(
            f"no completion passed; the guesses stay marked. {found.by} reports: {found.detail}"
        )
    _write(written, function, found, text, verified)
    keep_transcript(folder, experiment, name, f"for {folder.name}")
    told = f"its reference equals {verified}" if verified else "nothing could verify its reference"
    say(f"wrote {written} and {function.name}; {told}")


async def _asked(
    folder: Path,
    name: str,
    task: CompletionTask,
    trial: "_Trial",
    access: ModelAccess,
    show: Show,
) -> GeneratedCompletion | Refused:
    agents = replace(agent_settings(task.experiment) or AgentSettings(), model=name)
    model = open_model(folder, agents, access, show)
    await model.ready()
    steps = Steps(StepFiles(folder / STEPS), time.monotonic)
    show("completion")
    ask = completion_asker(model, task.experiment, steps, agents)
    return await complete_spec(task, ask, trial)


class _Trial:
    """Tries references on recorded results and beside the baseline, as far as there are any."""

    def __init__(self, experiment: Experiment, device: str | None, show: Show) -> None:
        self._show = show
        self._stack = ExitStack()
        self._process = self._stack.enter_context(closing(ReferenceProcess()))
        self._cases = list(_cases(experiment))
        self._bench: DeviceBench | None = None
        self._open_bench(experiment, device)
        self.facts = tuple(_facts(self._cases[0])) if self._cases else ()

    @property
    def verified(self) -> str:
        """What a reference that passed equals; empty if there is nothing to compare with."""
        told = []
        if self._cases:
            told.append(f"the captured results of {counted(len(self._cases), 'shape')}")
        if self._bench is not None:
            told.append(f"the baseline on {self._device.name}")
        return " and ".join(told)

    async def __call__(self, attempt: int, completed: Experiment) -> str | None:
        """The message where a completion's reference or ranges do not fit."""
        self._show(f"trying completion {attempt + 1}")
        return await asyncio.to_thread(self._problem, completed)

    def close(self) -> None:
        """End the child processes."""
        self._stack.close()

    def _problem(self, completed: Experiment) -> str | None:
        assert completed.reference is not None
        for case in self._cases:
            if problem := _outside(completed, case):
                return problem
            fresh = replace(
                case,
                arguments=resolve_arguments(completed, case.symbols),
                given=frozenset(a.name for a in completed.arguments if a.tolerance is not None),
            )
            if problem := reference_problem(self._process, completed.reference, fresh):
                return problem
        return self._prepared(completed) if self._bench is not None else None

    def _open_bench(self, experiment: Experiment, wanted: str | None) -> None:
        """Open a device, if there is one on which the baseline runs."""
        backend = experiment.kernel.language
        try:
            self._device, indices = choose(list_devices((backend,)), backend, wanted)
        except EnvironmentProblem as problem:
            if wanted is not None:
                raise
            self._show(f"not compared with the baseline: {problem}")
            return
        self._compiler = self._stack.enter_context(CompileWorker(self._device))
        bench = self._stack.enter_context(closing(DeviceBench(backend, indices[0])))
        self._bench = bench
        self._show("running the baseline")
        if why := self._prepared(experiment):
            self._bench = None
            self._show(f"not compared with the baseline: {why}")

    def _prepared(self, experiment: Experiment) -> str | None:
        """Why the baseline cannot be prepared with the experiment's reference, if so."""
        assert self._bench is not None
        found = baseline_problem(experiment, self._device, self._compiler, self._bench)
        return None if found is None else str(found)


def _cases(experiment: Experiment) -> Sequence[RecordedCase]:
    """The tune shapes whose inputs and results are recorded in files."""
    found = []
    for shape in experiment.shapes.tune:
        arguments = resolve_arguments(experiment, shape.symbols)
        case = _case(shape, arguments)
        if case is not None:
            found.append(case)
    return found


def _case(shape: ShapeBinding, arguments: tuple[ResolvedArgument, ...]) -> RecordedCase | None:
    files = [a.fill for a in arguments if isinstance(a.fill, FromFile)]
    outputs = [argument for argument in arguments if argument.is_output]
    if not files or not outputs:
        return None
    folder = Path(files[0].file).parent / AFTER
    inputs: dict[str, NDArray[Any]] = {}
    results: dict[str, NDArray[Any]] = {}
    for argument in arguments:
        if argument.is_input:
            if not isinstance(argument.fill, FromFile):
                return None
            inputs[argument.name] = fill(
                argument, np.random.default_rng(0), "default", _no_function
            )
        if argument.is_output:
            path = folder / result_file(argument.name, shape.symbols)
            try:
                held = np.load(path, allow_pickle=False)
                results[argument.name] = held.astype(numpy_dtype(argument.dtype)).reshape(
                    argument.shape
                )
            except FileNotFoundError:
                return None
            except (OSError, ValueError) as error:
                raise SpecError(
                    f"{path} is no recorded result of {argument.name}: {error}"
                ) from None
    return RecordedCase(
        label=str(shape), arguments=arguments, symbols=shape.symbols, inputs=inputs, results=results
    )


def _no_function(*_: object) -> NDArray[Any]:
    raise AssertionError("recorded inputs are files")


def _facts(case: RecordedCase) -> list[str]:
    """What recorded values of one shape look like, a line for each array."""
    told = []
    for kind, arrays in (("before", case.inputs), ("after", case.results)):
        for name, values in arrays.items():
            numbers = values.astype(np.float64).reshape(-1)
            finite = numbers[np.isfinite(numbers)]
            if not finite.size:
                told.append(f"{name} {kind} the launch ({case.label}): no finite number")
                continue
            told.append(
                f"{name} {kind} the launch ({case.label}): {numbers.size} elements from "
                f"{finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}, "
                f"{np.mean(numbers == 0):.1%} zeros, {numbers.size - finite.size} not finite; "
                f"the first are {', '.join(f'{one:.6g}' for one in numbers[:4])}"
            )
    return told


def _outside(completed: Experiment, case: RecordedCase) -> str | None:
    """A recorded input outside the range that an argument is given."""
    for argument in completed.arguments:
        if argument.range is None or argument.name not in case.inputs:
            continue
        values = case.inputs[argument.name]
        numbers = values[np.isfinite(values)] if is_float(argument.dtype) else values
        low, high = argument.range
        if numbers.size and not low <= float(numbers.min()) <= float(numbers.max()) <= high:
            return (
                f"{case.label}: {argument.name} holds values from {float(numbers.min()):.6g} to "
                f"{float(numbers.max()):.6g}, outside its range [{low:g}, {high:g}]"
            )
    return None


def _write(
    written: Path,
    function: Path,
    answer: GeneratedCompletion,
    text: str,
    verified: str,
) -> None:
    fields = CompletedFields(
        reference=f"{function.name}:{answer.draft.reference}",
        domain=[limit.text for limit in answer.draft.domain],
        ranges=answer.draft.ranges,
        tolerances=answer.draft.tolerances,
        verified=verified,
    )
    try:
        for path, contents in ((function, answer.source), (written, completed_text(text, fields))):
            with path.open("x", encoding="utf-8") as stream:
                stream.write(contents)
    except OSError as error:
        raise EnvironmentProblem(f"{error.filename} cannot be written: {error.strerror}") from None
