"""One process's work on a run directory: a session, an engine and a journal, put together and run.

The same object serves ``--fleet local`` in the entry point's process and Ray's driver actor. It is
the only writer of the run directory. Knows no terminal and no signal.
"""

import asyncio
import importlib.metadata
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from agents.patterns.inheritance import seeded
from agents.patterns.store import read_patterns
from cluster.cli.console import Activity, Update
from cluster.fleets.claim import Claim
from cluster.runs.budget import checker_bytes, reserve_for, run_estimate
from cluster.runs.run_process import RunProcess, StopRequests
from kernelwright import __version__
from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.engine.engine import TICK_SECONDS, Engine
from tuner.engine.fleet import Fleet
from tuner.engine.progress import Pace, RunProgress
from tuner.engine.session import Session, StopReason
from tuner.errors import EnvironmentProblem, NothingValid, RunInterrupted, SpecError
from tuner.experiment.model import Experiment
from tuner.export.bundle import export_files
from tuner.journal.facts import EpochOpened, Fact, IncumbentEntered, TrialProposed
from tuner.journal.file import Journal
from tuner.journal.history import History
from tuner.report.estimate import Estimate
from tuner.report.tables import TABLES, status_json
from tuner.results.result import Result
from tuner.results.summary import summarise
from tuner.run_directory import STATUS, RunDirectory, RunView, begun
from tuner.search.background import BackgroundProposer
from tuner.search.port import Proposer
from tuner.search.select import make_proposer
from tuner.space.feasible import feasible_set

PATTERNS_FILE = "patterns.json"
"""The patterns that this run reads, copied when it began so that a resume reads the same."""

EXPORT = "export"
"""Where the tuned sources lie in a run directory."""

STATUS_SECONDS, STATUS_SHARE = 1.0, 0.02
"""How often the status is written, and the share of the time that this may take at most: it adds up
every trial."""

_log = logging.getLogger(__name__)


class SearchRun:
    """A run without agents that this process goes on with, from whatever its journal holds."""

    def __init__(self, process: RunProcess) -> None:
        self._process = process
        self._asked = StopRequests(process.path)

    def stop(self, reason: StopReason) -> None:
        """Ask for an end: ``stopped`` confirms what was found, ``interrupted`` leaves at once."""
        self._asked.add(reason)

    async def progress(self) -> AsyncIterator[Update]:
        """Go on until the run is over or was told to stop, yielding how far it is.

        Raises:
            KernelwrightError: spec or machine do not allow it; everything finished is kept.
        """
        claim = self._process.claim
        async with self._process.opened() as (directory, engine):
            self._asked.begin()
            began = engine.now()
            async with aclosing(opening(engine, claim, self._asked)) as waits:
                async for words in waits:
                    yield Activity(words=words)
            if not engine.opened:
                return
            seconds = engine.now() - began - claim.waited
            search = run_search(directory, engine, self._asked, opening=seconds)
            async with aclosing(search) as steps:
                async for progress in steps:
                    yield progress


async def opening(
    engine: Engine, claim: Claim, asked: Callable[[], StopReason | None]
) -> AsyncGenerator[str, None]:
    """Open an engine's fleet, yielding what it waits for; leaves it closed if an end is asked for.

    Raises:
        KernelwrightError: there is no device.
    """
    task, said = asyncio.create_task(engine.fleet()), ""
    try:
        while not (await asyncio.wait([task], timeout=TICK_SECONDS))[0] and asked() is None:
            if said != claim.words and claim.words:
                yield claim.words
            said = claim.words
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def run_search(
    directory: RunDirectory,
    engine: Engine,
    asked: Callable[[], StopReason | None],
    ended: Callable[[History, Result], None] = lambda *_: None,
    incumbents: Sequence[IncumbentEntered] = (),
    *,
    rest: bool = True,
    profile: bool = False,
    opening: float = 0.0,
) -> AsyncGenerator[RunProgress, None]:
    """Search the template of a run directory, and keep what follows from it there.

    Args:
        directory: held by this process.
        engine: stays open.
        asked: whether an end was asked for; looked at after each step.
        ended: called with history and result once the search has finished.
        incumbents: what is to be beaten; those not entered yet are.
        rest: whether winners are timed on held-out shapes too and in the other cache state, and are
            run under the checkers.
        profile: whether hardware counters of the best are read, for a model.
        opening: seconds of the budget that bringing up the fleet took.

    Raises:
        SpecError: the budget cannot hold a whole run.
    """
    fleet = await engine.fleet()
    with directory.journal() as journal:
        history, proposer, expected = _restore(
            directory, journal, engine, fleet, incumbents, rest=rest
        )
        reserve = reserve_for(fleet, opening, rest=rest)
        session = Session(history, directory.secret, rest=rest, profile=profile, reserve=reserve)
        assert expected.space is not None, "there is a template"
        status, pace = _StatusFile(directory, journal), Pace(expected.space)
        most = min(directory.experiment.search.trials, expected.space)
        checkers = rest and checker_bytes(fleet.device) > 0
        try:
            async with aclosing(engine.drive(session, journal, proposer)) as steps:
                async for t in steps:
                    lost = fleet.benches_lost
                    if (reason := asked()) is not None:
                        # Where nothing can be confirmed it is left as it is, to be resumed.
                        able = session.history.outcomes["measured"] and not lost
                        session.stop(reason if able else "interrupted")
                    elif lost and session.searched(t) >= directory.experiment.search.seconds:
                        raise RunInterrupted(f"no bench is left when the time is over ({lost})")
                    status.write_if_due(session.history)
                    progress = replace(
                        RunProgress.of(session, t),
                        trials=most,
                        prospect=expected.prospect,
                        lost=lost or "",
                        missing=fleet.benches_missing,
                        waiting=fleet.benches_waiting,
                    )
                    yield replace(progress, left=pace.left(progress), checkers=checkers)
        finally:  # also where it is left in between
            journal.sync()
            result = summarise(session.history)
            with derived():
                write_derived(directory, session.history, result, journal.synced)
        if session.history.finished:
            ended(session.history, result)


class _StatusFile:
    """The status of a search that goes on."""

    def __init__(self, directory: RunDirectory, journal: Journal) -> None:
        self._directory = directory
        self._journal = journal
        self._due = 0.0

    def write_if_due(self, history: History) -> None:
        """Write it, unless that was done or took long just before."""
        if (began := time.monotonic()) < self._due:
            return
        found = summarise(history)
        with derived():
            self._directory.write(STATUS, status_json(found, self._journal.synced))
        took = time.monotonic() - began
        self._due = began + max(STATUS_SECONDS, took / STATUS_SHARE)


def copy_search(
    view: RunView, path: Path, experiment: Experiment, kinds: tuple[type[Fact], ...], secret: int
) -> None:
    """Copy a search's facts of these kinds to another run directory, made if it is not there.

    Copies the rest if a killed process began it.
    """
    if begun(path):
        copy = RunDirectory.open(path)
    else:
        copy = RunDirectory.create(path, experiment, "", secret=secret)
    with closing(copy), copy.journal() as journal:
        wanted = [entry for entry in view.entries() if isinstance(entry.fact, kinds)]
        for entry in wanted[len(journal.entries) :]:
            journal.append(entry)
        journal.sync()


def _restore(
    directory: RunDirectory,
    journal: Journal,
    engine: Engine,
    fleet: Fleet,
    incumbents: Sequence[IncumbentEntered],
    *,
    rest: bool,
) -> tuple[History, Proposer, Estimate]:
    """History and proposer as the journal left them, in a new epoch, if the budget allows it."""
    experiment, device = directory.experiment, fleet.device
    if experiment.template is None:
        raise SpecError(f"{directory.path}: the experiment that it keeps has no template")
    space = feasible_set(experiment, experiment.template, device)
    patterns = read_patterns(directory.path / PATTERNS_FILE)
    search = seeded(experiment, patterns, device.name).search
    proposer = BackgroundProposer(lambda: make_proposer(search, space))
    history = History.of(experiment, journal.entries)
    for entry in journal.entries:
        if isinstance(entry.fact, TrialProposed):
            proposer.record(entry.fact.trial, entry.fact.configuration)
    expected = run_estimate(experiment, fleet, space=space.size, history=history)
    if rest and not history.clock.spent:
        expected.require_time()
    history.apply(engine.append(journal, epoch_opened(directory, fleet)))
    for incumbent in incumbents[len(history.incumbents) :]:
        history.apply(engine.append(journal, incumbent))
    return history, proposer, expected


def epoch_opened(directory: RunDirectory, fleet: Fleet) -> EpochOpened:
    """That this process works on a run with these workers."""
    return EpochOpened(
        device=fleet.device,
        environment=directory.record_environment(_environment(fleet.device)),
        version=__version__,
        compile_slots=fleet.compile_slots,
        bench_slots=fleet.bench_slots,
    )


@contextmanager
def derived() -> Iterator[None]:
    """Log that a file cannot be written, rather than end the run: it can be rebuilt."""
    try:
        yield
    except EnvironmentProblem as error:
        _log.warning("%s", error)


def write_derived(directory: RunDirectory, history: History, result: Result, facts: int) -> None:
    """Write what can be rebuilt from a journal of so many facts; the status, which says so, last.

    Raises:
        EnvironmentProblem: a file cannot be written.
    """
    for name, table in TABLES.items():
        directory.write(name, table(history))
    if history.finished:
        with suppress(NothingValid):
            for name, text in export_files(history, result).items():
                directory.write(f"{EXPORT}/{name}", text)
    directory.write(STATUS, status_json(result, facts))


def _environment(device: Device) -> dict[str, object]:
    """What makes times incomparable when it changes."""
    compilers = {}
    for name in traits_of(device.backend).distributions:
        with suppress(importlib.metadata.PackageNotFoundError):
            compilers[name] = importlib.metadata.version(name)
    return {
        "device": device.model,
        "arch": device.arch,
        "driver": device.driver,
        "compilers": compilers,
    }
