"""The evaluator: what the loop of rounds needs of compilers and devices, over a fleet.

Owns admission, the baseline's figures and where a round's search lies (``rounds/NN``, an ordinary
run directory). Knows no model.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from agents.evaluator import StopRequested
from agents.generation.corners import corners
from agents.planning import Variant
from agents.static_profile import UNKNOWN, StaticProfile
from agents.verdict import Admitted, Refused, Verdict, refused, round_verdict
from cluster.console import ENDLESS, Progress
from cluster.driver import TICK_SECONDS
from cluster.fleets.shared import SharedFleet
from cluster.search_run import StopReason, pursue
from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.fleet import (
    BASELINE,
    Benched,
    BenchJob,
    BenchSetup,
    Candidate,
    Compiled,
    CompileJob,
    Job,
    Lost,
    Prepared,
    PrepareJob,
)
from tuner.errors import DeviceNeeded, NothingValid, SpecError
from tuner.experiment.model import Experiment, SearchSettings, Template
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import (
    BaselinePrepared,
    EpochOpened,
    IncumbentEntered,
    TrialFinished,
    TrialProposed,
)
from tuner.journal.history import History
from tuner.plan import CellPlan, KernelStep, Plan
from tuner.results.result import Result
from tuner.run_directory import RunDirectory, RunView, begun
from tuner.space.feasible import feasible_set
from tuner.space.limits import over_limit, within_limits
from tuner.space.lower import lower
from tuner.space.occupancy import occupancy
from tuner.trial import Code, Configuration, Full, Rejected, Stage, Value

A = TypeVar("A", Compiled, Prepared, Benched)

ATTEMPTS = 3
"""A job is sent this often before its loss counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The kernel as it stands: microseconds per tune shape, and what the compiler says of it.

    ``device`` is what it is tuned for; times and its ceilings are ``None`` where that was not at
    hand.
    """

    device: Device
    times_us: tuple[float | None, ...]
    static: StaticProfile
    ceilings: Ceilings | None = None


BASELINES: TypeAdapter[Baseline] = TypeAdapter(Baseline)


def round_path(run: Path, number: int, suffix: str = "") -> Path:
    """Where a round's search lies; ``suffix`` names one that only screens drafts."""
    return run / "rounds" / f"{number:02d}{suffix}"


def rounds_begun(run: Path) -> list[Path]:
    """Where the searches of rounds lie so far, in order; a folder that holds none is no round."""
    numbers = {int(path.name) for path in (run / "rounds").glob("*") if path.name.isdecimal()}
    return [path for number in sorted(numbers) if begun(path := round_path(run, number))]


class EngineEvaluator:
    """Port :class:`agents.evaluator.TemplateEvaluator` over one fleet for all rounds.

    Args:
        fleet: closed by whoever made it.
        directory: the run's own.
        tell: shown how far a search is.
        asked: whether an end was asked for.
    """

    def __init__(
        self,
        fleet: SharedFleet,
        directory: RunDirectory,
        tell: Callable[[Progress], None],
        asked: Callable[[], StopReason | None],
    ) -> None:
        self._fleet = fleet
        self._directory = directory
        self._tell = tell
        self._asked = asked
        self._compiled: Candidate | None = None
        self._prepared: tuple[tuple[Full, ...], Ceilings | None] | None = None

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    async def baseline(self) -> Baseline:
        """Compile the kernel as it stands; check and time it too where there is a device.

        Raises:
            NothingValid: it fails its own checks.
        """
        await self._fleet.bring_up()
        static = _static(await self._compiled_baseline(), self._fleet.device)
        tune = self._directory.experiment.shapes.tune
        times: tuple[float | None, ...] = (None,) * len(tune)
        ceilings = None
        with suppress(DeviceNeeded):
            cells, ceilings = await self._prepare()
            times = tuple(cell.median_ns / 1000 for cell in cells[: len(tune)])
        return Baseline(device=self._fleet.device, times_us=times, static=static, ceilings=ceilings)

    async def admit(self, experiment: Experiment, template: Template) -> Admitted | Refused:
        """Compile the corners of the template's space, then run one that fits the device.

        Raises:
            DeviceNeeded: they compile, and there is no device to run one on.
        """
        self._check()
        await self._fleet.bring_up()
        try:
            points = corners(
                await asyncio.to_thread(feasible_set, experiment, template, self._fleet.device)
            )
        except SpecError as error:
            return Refused(by="The search", detail=str(error))
        shapes = experiment.shapes.tune
        found = await self._compile(
            [
                (number, point, lower(experiment, template, point, shapes, self._fleet.device))
                for number, point in enumerate(points)
            ]
        )
        for point, one in zip(points, found, strict=True):
            if isinstance(one, Rejected) and one.stage is Stage.COMPILE:
                return refused(one, point, template)
        fitting = [one for one in found if isinstance(one, Candidate)]
        if not fitting:
            worst = next(one for one in found if isinstance(one, Rejected))
            return refused(worst, points[0], template)
        middle = fitting[len(fitting) // 2]
        await self._prepare()
        answer = (await self._answers([BenchJob(candidates=(middle,))], Benched))[0]
        outcome = answer if isinstance(answer, Rejected) else answer.outcome
        if isinstance(outcome, Rejected):
            return refused(outcome, middle.configuration, template)
        return Admitted()

    async def search(
        self,
        round_number: int,
        experiment: Experiment,
        seeds: tuple[dict[str, Value], ...],
        suffix: str = "",
        incumbents: tuple[IncumbentEntered, ...] = (),
    ) -> Verdict:
        """Search in ``rounds/NN``, or go on there.

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
        verdict = await self._pursued(path, round_number, suffix, self._asked, incumbents)
        if verdict is None:
            raise StopRequested
        return verdict

    async def search_meanwhile(
        self,
        best: Variant,
        incumbents: tuple[IncumbentEntered, ...],
        suffix: str,
        until: Callable[[], bool],
    ) -> None:
        """Search the best variant's template further, in a copy of its search without an end."""
        before = round_path(self._directory.path, best.round, best.suffix)
        path = round_path(self._directory.path, best.round, suffix)
        if not begun(path):
            view = RunView.open(before)
            further = replace(view.experiment, search=_endless(view.experiment.search))
            copy = RunDirectory.create(path, further, "", secret=self._directory.secret)
            with closing(copy), copy.journal() as journal:
                for fact in view.facts():
                    if isinstance(
                        fact, EpochOpened | BaselinePrepared | TrialProposed | TrialFinished
                    ):
                        journal.append(fact)

        def asked() -> StopReason | None:
            return "interrupted" if until() or self._asked() is not None else None

        with suppress(DeviceNeeded):
            await self._pursued(path, best.round, suffix, asked, incumbents)

    async def confirm_meanwhile(
        self, best: Variant, incumbents: tuple[IncumbentEntered, ...], suffix: str
    ) -> Verdict | None:
        """Confirm the further search, if what leads it was not there before, beside what was."""
        self._check()
        before = round_path(self._directory.path, best.round, best.suffix)
        path = round_path(self._directory.path, best.round, suffix)
        if not begun(path):
            return None
        view, known = RunView.open(path), RunView.open(before)
        old = {fact.trial for fact in known.facts() if isinstance(fact, TrialFinished)}
        if History.of(view.experiment, view.facts()).leader() in (None, *old):
            return None
        verdict = await self._pursued(
            path, best.round, suffix, lambda: self._asked() or "stopped", incumbents
        )
        if verdict is None:
            raise StopRequested
        return verdict

    async def _pursued(
        self,
        path: Path,
        round_number: int,
        suffix: str,
        asked: Callable[[], StopReason | None],
        incumbents: tuple[IncumbentEntered, ...],
    ) -> Verdict | None:
        """The verdict of a search once it has come to its end; ``None`` if it was left."""
        await self._fleet.bring_up()
        found: list[Verdict] = []

        def ended(history: History, result: Result) -> None:
            found.append(round_verdict(history, result, f"round {round_number}"))

        with closing(RunDirectory.open(path)) as directory:
            experiment = directory.experiment
            async with aclosing(pursue(directory, self._fleet, asked, ended, incumbents)) as steps:
                async for progress in steps:
                    self._tell(replace(progress, round=round_number, suffix=suffix))
        await self._fleet.settle()
        verdict = found[0] if found else None
        if verdict is None or verdict.configuration is None:
            return verdict
        return replace(verdict, static=await self._static(experiment, verdict.configuration))

    async def _static(self, experiment: Experiment, configuration: Configuration) -> StaticProfile:
        """What the compiler says of a configuration; it was compiled before, so it compiles."""
        device, shapes = self._fleet.device, experiment.shapes.tune
        plan = lower(experiment, experiment.template, configuration, shapes, device)
        found = (await self._compile([(0, configuration, plan)]))[0]
        return _static(found, device) if isinstance(found, Candidate) else UNKNOWN

    def _check(self) -> None:
        if self._asked() is not None:
            raise StopRequested

    async def _compiled_baseline(self) -> Candidate:
        if self._compiled is None:
            experiment, nothing = self._directory.experiment, Configuration(())
            plan = lower(experiment, None, nothing, every_shape(experiment), self._fleet.device)
            candidate = (await self._compile([(BASELINE, nothing, plan)]))[0]
            if isinstance(candidate, Rejected):
                raise NothingValid(f"the baseline cannot be used: {candidate.detail}")
            self._compiled = candidate
        return self._compiled

    async def _prepare(self) -> tuple[tuple[Full, ...], Ceilings | None]:
        """The baseline's times and the ceilings; benches are ready for candidates from then on."""
        if self._prepared is None:
            setup = BenchSetup(
                experiment=self._directory.experiment,
                baseline=await self._compiled_baseline(),
                secret=self._directory.secret,
            )
            answer = (await self._answers([PrepareJob(setup=setup)], Prepared))[0]
            prepared = Prepared(result=answer) if isinstance(answer, Rejected) else answer
            if isinstance(prepared.result, Rejected):
                raise NothingValid(f"the baseline cannot be used: {prepared.result.detail}")
            self._prepared = prepared.result, prepared.ceilings
        return self._prepared

    async def _compile(
        self, wanted: Sequence[tuple[int, Configuration, Plan]]
    ) -> list[Candidate | Rejected]:
        """Each candidate compiled, or why not, in order."""
        device = self._fleet.device
        refused = {trial: over_limit(plan, device) for trial, _, plan in wanted}
        jobs = [
            CompileJob(trial=trial, builds=plan.builds)
            for trial, _, plan in wanted
            if refused[trial] is None
        ]
        answers = await self._answers(jobs, Compiled)
        compiled = {job.trial: answer for job, answer in zip(jobs, answers, strict=True)}
        found: list[Candidate | Rejected] = []
        for trial, configuration, plan in wanted:
            answer = refused[trial] or compiled[trial]
            made = answer if isinstance(answer, Rejected) else answer.result
            made = within_limits(plan, device, made)
            found.append(
                made
                if isinstance(made, Rejected)
                else Candidate(trial=trial, configuration=configuration, plan=plan, binaries=made)
            )
        return found

    async def _answers(self, jobs: Sequence[Job], form: type[A]) -> list[A | Rejected]:
        """The answer to each job, in order; a worker that dies again and again is a rejection."""
        waiting = {_number(job): index for index, job in enumerate(jobs)}
        found: dict[int, A | Rejected] = {}
        lost = dict.fromkeys(range(len(jobs)), 0)
        for job in jobs:
            self._fleet.submit(job)
        while len(found) < len(jobs):
            for answer in await self._fleet.answers(TICK_SECONDS):
                if isinstance(answer, Lost):
                    index = waiting[_number(answer.job)]
                    lost[index] += 1
                    if lost[index] < ATTEMPTS:
                        self._fleet.submit(answer.job)
                    else:
                        found[index] = Rejected(
                            stage=Stage.FLEET, code=Code.WORKER_LOST, detail=answer.reason
                        )
                elif isinstance(answer, form):
                    found[waiting[_number(answer)]] = answer
        return [found[index] for index in range(len(jobs))]


def _endless(search: SearchSettings) -> SearchSettings:
    """A search for as long as there is time, by a strategy that learns from what is known."""
    strategy = "gp" if search.strategy == "auto" else search.strategy
    return replace(
        search, strategy=strategy, trials=ENDLESS, seconds=float(ENDLESS), device_seconds=None
    )


def _number(thing: Job | Compiled | Prepared | Benched) -> int:
    """What tells the jobs of one call apart, and says which of them an answer belongs to."""
    match thing:
        case CompileJob(trial=trial) | Compiled(trial=trial) | Benched(trial=trial):
            return trial
        case BenchJob(candidates=candidates):
            return candidates[0].trial
        case _:
            return BASELINE


def _static(candidate: Candidate, device: Device) -> StaticProfile:
    """Of the first launch on the first shape that it can serve."""
    for cell in candidate.plan.cells:
        if not isinstance(cell, CellPlan):
            continue
        for step in cell.steps:
            if not isinstance(step, KernelStep):
                continue
            usage = dict(candidate.binaries[cell.build].usage).get(step.entry)
            if usage is None or usage.registers is None or device.backend != "cuda":
                return StaticProfile(usage=usage)
            shared = (usage.static_shared_bytes or 0) + step.shared_bytes
            threads = math.prod(step.block)
            fraction = occupancy(device, threads, usage.registers, shared).fraction
            return StaticProfile(usage=usage, occupancy=fraction)
    return UNKNOWN
