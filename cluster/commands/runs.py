"""``run`` and ``resume``: from a spec, or a run directory, to a printed result."""

import asyncio
import gc
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Unpack

from agents.rounds_summary import STEPS, read_summary
from agents.settings import SECTIONS
from cluster.cli.console import display, say
from cluster.commands import patterns, report, results
from cluster.commands.find_spec import find_spec, tunable
from cluster.runs.model_choice import (
    check_endpoint,
    check_models,
    choose_model,
    copy_transcript,
    with_agents,
)
from cluster.runs.placement import Placement, PlaceOptions
from cluster.runs.resuming import allow_seconds, interrupt_note, resume_command, resume_hint
from cluster.runs.run_layout import STOP_FILE, new_name
from cluster.runs.workplace import Running, Workplace, workplace
from cluster.settings import Settings
from tuner.drafts.draft_spec import guesses_left, unread_guesses
from tuner.errors import (
    DeviceNeeded,
    EnvironmentProblem,
    KernelwrightError,
    NothingValid,
    Preempted,
    RunInterrupted,
)
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment
from tuner.lease import in_use, read_tenure
from tuner.run_directory import RunDirectory, RunView, begun

LOG_SECONDS = 5.0
"""How long a job on a drained node stays after its last line: a node that nothing uses any more is
taken away, while Ray passes on the log of a job every two seconds."""


def run(
    spec: str,
    *,
    run_dir: Path | None,
    trials: int | None,
    seconds: float | None,
    model: str | None,
    use_patterns: bool,
    as_json: bool,
    **options: Unpack[PlaceOptions],
) -> None:
    """Tune the kernel of a spec; ``model`` writes the templates."""
    settings, where = Settings.read(), Placement.of(options)
    with new_run(
        spec,
        settings,
        where,
        run_dir=run_dir,
        trials=trials,
        seconds=seconds,
        model=model,
        use_patterns=use_patterns,
    ) as new:
        # The run directory keeps the fleet.
        follow_run(new.running, new.folder, replace(where, fleet=None), as_json=as_json)
    with _reminding(new.guesses):
        report.conclude(new.folder, as_json=as_json, learn=patterns.leave)


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is ready to begin; ``guesses`` are the lines of the spec that need review."""

    folder: Path
    running: Running
    guesses: tuple[int, ...]


@contextmanager
def new_run(
    spec: str,
    settings: Settings,
    where: Placement,
    *,
    run_dir: Path | None,
    trials: int | None,
    seconds: float | None,
    model: str | None = None,
    use_patterns: bool = False,
) -> Iterator[NewRun]:
    """Make a run directory for a spec, and remove it again if the run fails with nothing kept.

    Raises:
        KernelwrightError: spec, model or machine do not allow the run.
    """
    with workplace(where, settings) as place:
        path = find_spec(spec, place.has_gpu)
        given = load_experiment(path, SECTIONS)
        text = path.read_text(encoding="utf-8")
        if guesses := unread_guesses(text):
            say(guesses_left(guesses))
        asked = choose_model(path, given, model)
        check_endpoint(path, given, asked, where.access.endpoints)
        check_models(path, given, asked, model)
        if asked == "none":
            experiment = replace(tunable(given), agents=None)
        else:
            experiment = with_agents(given, asked)
        experiment = _with_budget(experiment, trials, seconds)
        place.check(experiment.kernel.language)
        folder = settings.lasting(run_dir, Path("runs", new_name(experiment.name)), "--run-dir")
        if begun(folder):
            _check_same(RunView.open(folder), given, path)
        directory = RunDirectory.create(
            folder, experiment, text, fleet=where.fleet, origin=str(path.absolute())
        )
        try:
            with closing(directory):
                if use_patterns:
                    patterns.copy_near(directory)
                if asked == "replay":
                    copy_transcript(path, experiment, folder)
            with _reminding(guesses):
                yield NewRun(folder, _start(place, folder, replace(where, fleet=None)), guesses)
        except KernelwrightError as error:
            if not isinstance(error, RunInterrupted):  # which says how to continue it
                _remove_if_empty(folder)
            raise


def resume(
    run_dir: Path, *, seconds: float | None, as_json: bool, **options: Unpack[PlaceOptions]
) -> None:
    """Continue a run for the rest of its budget, or so long; print the result of a finished one."""
    folder = run_dir.absolute()
    if changed := _changed_since(RunView.open(folder)):
        say(changed)
    if results.is_over(folder):
        if seconds is not None:
            say("the run has finished, so that --seconds has no effect: begin a new run")
        report.conclude(folder, as_json=as_json)
        return
    if (held := read_tenure(folder)) is not None and not held.alive:
        say(f"taking the run directory over: {held.why_stale}")
    settings, where = Settings.read(), Placement.of(options)
    view = RunView.open(folder)
    with workplace(replace(where, fleet=where.fleet or view.info.fleet), settings) as place:
        place.check(view.experiment.kernel.language)
        if seconds is not None:
            allow_seconds(folder, seconds)
        follow_run(_start(place, folder, where), folder, where, as_json=as_json)
    report.conclude(folder, as_json=as_json, learn=patterns.leave)


def _start(place: Workplace, folder: Path, where: Placement) -> Running:
    """Start on a run directory; where Ray dies or a signal comes meanwhile, say how to continue."""
    with resume_hint(folder, where.words), interrupt_note(folder, where.words):
        return place.start(folder)


def _changed_since(view: RunView) -> str:
    """What to say if the spec that a run was begun from, or a file that it names, has changed."""
    origin = Path(view.info.origin)
    if not (view.info.origin and origin.is_file()):
        return ""
    try:
        changed = _changed(view.experiment, load_experiment(origin, SECTIONS))
    except KernelwrightError:
        changed = True
    if not changed:
        return ""
    return (
        f"{origin}, or a file that it names, has changed since this run began, which goes on with "
        "its own copy: begin a new run to tune what it says now"
    )


def _check_same(view: RunView, given: Experiment, path: Path) -> None:
    """Refuse a run directory that a process holds, or that is of something else than a spec.

    Raises:
        EnvironmentProblem: saying which process, or which spec.
    """
    if (held := results.writer(view.path)) is not None:
        raise in_use(view.path, held)
    if not _changed(view.experiment, given):
        return
    origin = view.info.origin or f"another spec, {view.info.experiment}"
    if origin == str(path.absolute()):
        found = f"{path} before it or a file that it names was changed"
    else:
        found = f"{origin}, not of {path}"
    raise EnvironmentProblem(f"{view.path} is a run of {found}: name another folder with --run-dir")


def _changed(before: Experiment, now: Experiment) -> bool:
    """Whether kernel, arguments, shapes or reference differ."""
    return any(
        getattr(before, name) != getattr(now, name)
        for name in ("kernel", "arguments", "shapes", "reference")
    )


@contextmanager
def _reminding(guesses: tuple[int, ...]) -> Iterator[None]:
    """Mention unread guesses in an error about the spec's baseline or space."""
    try:
        yield
    except NothingValid as error:
        if not guesses:
            raise
        raise NothingValid(f"{error}; {guesses_left(guesses)}") from error


def _with_budget(experiment: Experiment, trials: int | None, seconds: float | None) -> Experiment:
    search = experiment.search
    search = replace(
        search,
        trials=search.trials if trials is None else trials,
        seconds=search.seconds if seconds is None else seconds,
    )
    return replace(experiment, search=search)


def follow_run(run: Running, folder: Path, where: Placement, *, as_json: bool) -> None:
    """Show progress until the run ends; a first signal ends it in order, a second at once.

    Raises:
        SystemExit: the run can be continued, with the options of ``where`` (the target among them
            until the device itself is needed): 130 or 143 after a signal, 143 where the node is
            drained, 130 if it was stopped before anything was measured, 6 if a reply or the device
            is awaited, 3 after its result so far if it lost its driver, its benches or its disk.
    """
    received: list[signal.Signals] = []

    async def follow() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            if len(received) == 1:
                run.stop("interrupted")
            elif task is not None:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        updates = run.progress()
        with display():
            first = await anext(updates, None)
        say(f"run directory {folder}")  # not before: a run that is refused removes it
        with display() as show:
            if first is not None:
                show(first)
            async for update in updates:
                show(update)

    again = where.words
    on_target = again if where.target is None else [*again, "--target", where.target]
    gc.freeze()  # what was imported for Ray too: to look through it stops all threads for 0.1 s
    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(follow())
    except (DeviceNeeded, Preempted) as why:
        if not results.is_over(folder):
            drained = isinstance(why, Preempted) and Settings.read().in_job
            lingers = LOG_SECONDS if drained else 0.0
            _leave(str(why), folder, again, why.exit_code, lingers=lingers)
    except RunInterrupted as error:
        with suppress(KernelwrightError):
            report.report(folder, as_json=as_json)
        words = f"error: {error}; everything before is kept"
        _leave(words, folder, on_target, error.exit_code)
    if received and not results.is_over(folder):
        words = "interrupted; everything measured is kept"
        _leave(words, folder, on_target, 128 + received[0])
    if (folder / STOP_FILE).exists() and not results.is_over(folder):
        words = "stopped before it could confirm; everything measured is kept"
        _leave(words, folder, on_target, 128 + signal.SIGINT)
    summary = read_summary(folder)
    if summary is not None and summary.waiting:
        options = again if summary.reason == "device" else on_target
        _leave(summary.detail, folder, options, DeviceNeeded.exit_code)


def _leave(
    why: str, folder: Path, options: Sequence[str], code: int, *, lingers: float = 0.0
) -> NoReturn:
    """Exit with the command that continues the run, after so many seconds."""
    say(f"{why}; continue with: {resume_command(folder, options)}")
    time.sleep(lingers)
    sys.exit(code)


def _remove_if_empty(folder: Path) -> None:
    """Remove the directory of a run that has no facts and no steps."""
    if not RunView.open(folder).facts() and not any((folder / STEPS).glob("*")):
        shutil.rmtree(folder, ignore_errors=True)
