"""What the loop of rounds needs of compilers and devices, through the engine.

Owns admission, the baseline's figures and where a round's search lies (``rounds/NN``, an ordinary
run directory). Work outside a search is journalled in the run's own journal, each configuration
under a number of its own. Knows no model.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from agents.evaluator import StopRequested
from agents.generation.corners import MOST, corners
from agents.planning import Variant
from agents.static_profile import UNKNOWN, StaticProfile, static_profile
from agents.verdict import Admitted, Refused, Verdict, refused, round_verdict
from cluster.runs.budget import RoundsBudget
from cluster.runs.run_layout import round_path
from cluster.runs.search_run import copy_search, epoch_opened, run_search
from tuner.candidate import BASELINE, Candidate
from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.candidates import Candidates
from tuner.engine.engine import Engine
from tuner.engine.fleet import Fleet
from tuner.engine.progress import ENDLESS, RunProgress
from tuner.engine.session import StopReason
from tuner.engine.work import BenchSetup, CompileWork, MeasureWork, PrepareWork
from tuner.errors import DeviceNeeded, NothingValid, SpecError
from tuner.experiment.model import Experiment, SearchSettings, Template
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    EpochOpened,
    IncumbentEntered,
    SearchEnded,
    TrialCompiled,
    TrialFinished,
    TrialProposed,
)
from tuner.journal.file import Journal
from tuner.journal.history import History
from tuner.results.rejections import baseline_rejection
from tuner.results.result import Result
from tuner.run_directory import RunDirectory, RunView, begun
from tuner.space.feasible import feasible_set
from tuner.trial import Configuration, Full, Rejected, Stage, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The kernel as it stands: microseconds per tune shape, and what the compiler says of it.

    ``device`` is what it is tuned for; without it at hand, times and ceilings are ``None``.
    """

    device: Device
    times_us: tuple[float | None, ...]
    static: StaticProfile
    ceilings: Ceilings | None = None


BASELINES: TypeAdapter[Baseline] = TypeAdapter(Baseline)

CORNERS_PER_SLOT = 3
"""Corners that a compile slot compiles at most before a template is admitted."""


class EngineEvaluator:
    """Port :class:`agents.evaluator.TemplateEvaluator` over an engine that serves every round.

    Args:
        engine: closed by the caller.
        directory: the run's own.
        journal: the run's own, opened for writing.
        tell: shown how far a search is.
        asked: whether an end was asked for.
        profile: whether a model will read hardware counters of the best.
    """

    def __init__(
        self,
        engine: Engine,
        directory: RunDirectory,
        journal: Journal,
        tell: Callable[[RunProgress], None],
        asked: Callable[[], StopReason | None],
        *,
        profile: bool,
    ) -> None:
        self._engine = engine
        self._directory = directory
        self._journal = journal
        self._tell = tell
        self._asked = asked
        self._profile = profile
        self._used: Fleet | None = None
        self._budget = RoundsBudget()
        self._proposed = sum(isinstance(entry.fact, TrialProposed) for entry in journal.entries)
        self._baseline: Candidate | None = None
        self._prepared: tuple[tuple[Full, ...], Ceilings | None] | None = None

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def committed(self, known: float) -> float:
        """Seconds of the budget that are spent, or that the last confirmation will take."""
        return self._budget.committed(known)

    def confirming(self) -> float:
        """Seconds that confirming a round's search will take."""
        return self._budget.confirming

    async def baseline(self) -> Baseline:
        """Compile the kernel as it stands; check and time it too where there is a device.

        Raises:
            NothingValid: it fails its own checks.
        """
        tune = self._directory.experiment.shapes.tune
        times: tuple[float | None, ...] = (None,) * len(tune)
        ceilings = None
        with self._budget.counted():
            device = (await self._fleet()).device
            static = static_profile(await self._compiled_baseline(), device)
            with suppress(DeviceNeeded):
                cells, ceilings = await self._prepare()
                times = tuple(cell.median_ns / 1000 for cell in cells[: len(tune)])
        return Baseline(device=device, times_us=times, static=static, ceilings=ceilings)

    async def admit(self, experiment: Experiment, template: Template) -> Admitted | Refused:
        """Compile the corners of the template's space, then run one that fits the device.

        Raises:
            DeviceNeeded: they compile, and there is no device to run one on.
        """
        self._check()
        fleet = await self._fleet()  # no budget counts waiting for devices that were given back
        with self._budget.counted():
            return await self._admitted(experiment, template, fleet)

    async def _admitted(
        self, experiment: Experiment, template: Template, fleet: Fleet
    ) -> Admitted | Refused:
        device, most = fleet.device, min(MOST, CORNERS_PER_SLOT * fleet.compile_slots)
        tune = experiment.shapes.tune
        try:
            space = await asyncio.to_thread(feasible_set, experiment, template, device)
            points = corners(space, most)
        except SpecError as error:
            return Refused(by="The search", detail=str(error))
        made = await self._compile(experiment, template, points)
        for point, one in zip(points, made, strict=True):
            if isinstance(one, Rejected) and one.stage is Stage.COMPILE:
                return refused(one, point, template, tune)
        fitting = [one for one in made if isinstance(one, Candidate)]
        if not fitting:
            worst = next(one for one in made if isinstance(one, Rejected))
            return refused(worst, points[0], template, tune)
        middle = fitting[len(fitting) // 2]
        await self._prepare()
        work = MeasureWork(candidates=(middle,))
        for finished in await self._engine.results(self._journal, [work]):
            if isinstance(finished, TrialFinished) and isinstance(finished.outcome, Rejected):
                return refused(finished.outcome, middle.configuration, template, tune)
        return Admitted()

    async def search(
        self,
        round_number: int,
        experiment: Experiment,
        seeds: tuple[dict[str, Value], ...],
        suffix: str = "",
        incumbents: tuple[IncumbentEntered, ...] = (),
    ) -> Verdict:
        """Search in ``rounds/NN``, or continue there.

        Raises:
            StopRequested: the search was left before its end.
            DeviceNeeded: there is none.
        """
        self._check()
        path = round_path(self._directory.path, round_number, suffix)
        if not begun(path):
            seeded = replace(
                experiment, agents=None, search=replace(experiment.search, seeds=seeds)
            )
            RunDirectory.create(path, seeded, "", secret=self._directory.secret).close()
        await self._fleet()
        with self._budget.counted():
            return await self._search(path, round_number, suffix, self._asked, incumbents)

    async def search_meanwhile(
        self,
        best: Variant,
        incumbents: tuple[IncumbentEntered, ...],
        suffix: str,
        until: Callable[[], bool],
    ) -> None:
        """Search the best variant's template further, in an unbounded copy of its search."""
        before = round_path(self._directory.path, best.round, best.suffix)
        path = round_path(self._directory.path, best.round, suffix)
        view = RunView.open(before)
        further = replace(view.experiment, search=_endless(view.experiment.search))
        searched = (EpochOpened, BaselinePrepared, TrialProposed, TrialFinished)
        copy_search(view, path, further, searched, self._directory.secret)

        def asked() -> StopReason | None:
            return "interrupted" if until() or self._asked() is not None else None

        with suppress(DeviceNeeded, StopRequested):
            await self._search(path, best.round, suffix, asked, incumbents)

    async def confirm_meanwhile(
        self, best: Variant, incumbents: tuple[IncumbentEntered, ...], suffix: str
    ) -> Verdict | None:
        """Confirm the further search beside the incumbents, if its leader is new."""
        self._check()
        before = round_path(self._directory.path, best.round, best.suffix)
        path = round_path(self._directory.path, best.round, suffix)
        if not begun(path):
            return None
        view, known = RunView.open(path), RunView.open(before)
        old = {fact.trial for fact in known.facts() if isinstance(fact, TrialFinished)}
        if History.of(view.experiment, view.entries()).leader() in (None, *old):
            return None
        return await self._search(
            path, best.round, suffix, lambda: self._asked() or "stopped", incumbents
        )

    async def confirm_finally(self, best: Variant, suffix: str) -> Verdict:
        """Confirm a search's winners on the rest, checkers included, in a copy of the search.

        Raises:
            StopRequested: it was left before its end.
            DeviceNeeded: there is none.
        """
        view = RunView.open(round_path(self._directory.path, best.round, best.suffix))
        path = round_path(self._directory.path, best.round, suffix)
        before = History.of(view.experiment, view.entries()).clock.spent
        left = self._directory.experiment.search.seconds - self._budget.spent
        search = replace(view.experiment.search, seconds=max(1e-3, before + left))
        facts = (
            EpochOpened,
            BaselinePrepared,
            IncumbentEntered,
            TrialProposed,
            TrialFinished,
            SearchEnded,
            ConfirmationSampled,
        )
        further = replace(view.experiment, search=search)
        copy_search(view, path, further, facts, self._directory.secret)
        with self._budget.counted():
            return await self._search(path, best.round, suffix, self._asked, (), rest=True)

    async def _search(
        self,
        path: Path,
        round_number: int,
        suffix: str,
        asked: Callable[[], StopReason | None],
        incumbents: tuple[IncumbentEntered, ...],
        *,
        rest: bool = False,
    ) -> Verdict:
        """The verdict of a search; raises :class:`StopRequested` if it was left before its end."""
        found: list[Verdict] = []

        fleet = await self._fleet()

        def ended(history: History, result: Result) -> None:
            found.append(round_verdict(history, result, f"round {round_number}"))
            self._budget.expect(history.experiment, fleet, history.baseline, history)

        with closing(RunDirectory.open(path)) as directory:
            experiment = directory.experiment
            search = run_search(
                directory,
                self._engine,
                asked,
                ended,
                incumbents,
                rest=rest,
                profile=self._profile and not rest,
            )
            async with aclosing(search) as steps:
                async for progress in steps:
                    self._tell(replace(progress, round=round_number, suffix=suffix))
        if not found:
            raise StopRequested
        (verdict,) = found
        if verdict.configuration is None:
            return verdict
        # It was compiled before, so it compiles.
        (made,) = await self._compile(experiment, experiment.template, [verdict.configuration])
        compiled = static_profile(made, fleet.device) if isinstance(made, Candidate) else UNKNOWN
        return replace(verdict, static=compiled)

    def _check(self) -> None:
        if self._asked() is not None:
            raise StopRequested

    async def _fleet(self) -> Fleet:
        """The engine's; journalled when this process first needs it.

        Another one, after its devices were given back, has prepared nothing.
        """
        fleet = await self._engine.fleet()
        if self._used is None:
            self._engine.append(self._journal, epoch_opened(self._directory, fleet))
        if fleet is not self._used:
            self._used, self._prepared = fleet, None
        return fleet

    async def _compiled_baseline(self) -> Candidate:
        if self._baseline is None:
            experiment, device = self._directory.experiment, (await self._fleet()).device
            candidates = Candidates(experiment, device)
            shapes = every_shape(experiment)
            begun = candidates.begin(BASELINE, None, Configuration(()), shapes)
            (made,) = await self._compiled(candidates, [begun])
            if isinstance(made, Rejected):
                raise NothingValid(f"the baseline cannot be used: {made.detail}")
            self._baseline = made
        return self._baseline

    async def _prepare(self) -> tuple[tuple[Full, ...], Ceilings | None]:
        """The baseline's times and the ceilings; benches are ready for candidates from then on."""
        if self._prepared is None:
            setup = BenchSetup(
                experiment=self._directory.experiment,
                baseline=await self._compiled_baseline(),
                secret=self._directory.secret,
            )
            (answer,) = await self._engine.results(self._journal, [PrepareWork(setup=setup)])
            assert isinstance(answer, BaselinePrepared)
            if isinstance(answer.result, Rejected):
                rejected = baseline_rejection(answer.result, setup.experiment)
                raise NothingValid(f"the baseline cannot be used: {rejected.detail}")
            self._prepared = answer.result, answer.ceilings
            self._budget.expect(setup.experiment, await self._fleet(), answer.result)
        return self._prepared

    async def _compile(
        self,
        experiment: Experiment,
        template: Template | None,
        configurations: Sequence[Configuration],
    ) -> list[Candidate | Rejected]:
        """Each configuration compiled for the tune shapes, or why it is not, in order."""
        candidates = Candidates(experiment, (await self._fleet()).device)
        begun = []
        for configuration in configurations:
            proposed = TrialProposed(trial=self._proposed, configuration=configuration)
            self._engine.append(self._journal, proposed)
            begun.append(
                candidates.begin(proposed.trial, template, configuration, experiment.shapes.tune)
            )
            self._proposed += 1
        return await self._compiled(candidates, begun)

    async def _compiled(
        self, candidates: Candidates, begun: Sequence[CompileWork | Rejected]
    ) -> list[Candidate | Rejected]:
        works = [one for one in begun if isinstance(one, CompileWork)]
        results = await self._engine.results(self._journal, works)
        made = {
            fact.trial: candidates.finish(fact)
            for fact in results
            if isinstance(fact, TrialCompiled)
        }
        return [one if isinstance(one, Rejected) else made[one.trial] for one in begun]


def _endless(search: SearchSettings) -> SearchSettings:
    """A search for as long as there is time, by a strategy that learns from what is known."""
    strategy = "gp" if search.strategy == "auto" else search.strategy
    return replace(
        search, strategy=strategy, trials=ENDLESS, seconds=float(ENDLESS), device_seconds=None
    )
