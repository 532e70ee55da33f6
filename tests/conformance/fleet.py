"""What every fleet does, whatever carries its jobs: inherit, and say how one is opened.

A fleet answers each job once, with values for the failures of candidates; it keeps going after
them, and it never blocks for longer than it was told to.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from tuner.candidate import BASELINE, Candidate
from tuner.engine.fleet import Fleet
from tuner.engine.work import (
    BenchSetup,
    CompileWork,
    ConfirmWork,
    ExamineWork,
    MeasureWork,
    PrepareWork,
)
from tuner.experiment.model import Experiment
from tuner.journal.facts import (
    Answer,
    BaselinePrepared,
    ConfirmationSampled,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
)
from tuner.plan import Plan
from tuner.space.lower import lower
from tuner.trial import Configuration, CutShort, Full, Measured, Rejected, Stage

UNCOMPILABLE = 90
"""The trial whose source is no program; a simulated fleet has to be told so."""

PATIENCE = 240.0
"""Less than a test's own limit, so that what came is told. Preparing was seen to take 100 s where
four processes shared two cores and the device."""

Body = Callable[[Fleet], Awaitable[None]]


class FleetConformance:
    """Inherit, set :attr:`experiment` and :attr:`configurations`, override :meth:`open_fleet`."""

    experiment: Experiment
    """With a template, two tune shapes and at least one held-out shape."""

    configurations: tuple[Configuration, ...]
    """At least three, feasible on every shape and right."""

    @classmethod
    async def open_fleet(cls) -> Fleet:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls) -> Iterator[Callable[[Body], None]]:
        """Runs a test on the one fleet of the class; each leaves it idle."""
        with asyncio.Runner() as runner:
            fleet = runner.run(cls.open_fleet())
            try:
                yield lambda body: runner.run(body(fleet))
            finally:
                runner.run(fleet.close())

    def plan(self, fleet: Fleet, number: int) -> tuple[Configuration, Plan]:
        shapes = (*self.experiment.shapes.tune, *self.experiment.shapes.held_out)
        baseline = number == BASELINE
        configuration = Configuration(()) if baseline else self.configurations[number]
        template = None if baseline else self.experiment.template
        return configuration, lower(self.experiment, template, configuration, shapes, fleet.device)

    async def collect(self, fleet: Fleet, count: int) -> list[Answer]:
        """The next ``count`` answers."""
        answers: list[Answer] = []
        until = time.monotonic() + PATIENCE
        while len(answers) < count:
            assert time.monotonic() < until, f"only {answers} after {PATIENCE} s"
            answers += await fleet.answers(timeout=1.0)
        return answers

    async def candidates(self, fleet: Fleet, numbers: tuple[int, ...]) -> list[Candidate]:
        """Compile these configurations, or the baseline."""
        plans = {number: self.plan(fleet, number) for number in numbers}
        for number, (_, plan) in plans.items():
            fleet.submit(_compile(number, plan))
        found: dict[int, Candidate] = {}
        for answer in await self.collect(fleet, len(numbers)):
            assert isinstance(answer, TrialCompiled), answer
            assert answer.rejected is None, answer.rejected
            configuration, plan = plans[answer.trial]
            assert [b.build for b in answer.binaries] == [b.digest for b in plan.builds]
            found[answer.trial] = Candidate(
                trial=answer.trial,
                configuration=configuration,
                plan=plan,
                binaries=answer.binaries,
            )
        return [found[number] for number in numbers]

    async def prepared(self, fleet: Fleet) -> BaselinePrepared:
        (baseline,) = await self.candidates(fleet, (BASELINE,))
        setup = BenchSetup(experiment=self.experiment, baseline=baseline, secret=12345)
        fleet.submit(PrepareWork(setup=setup))
        (answer,) = await self.collect(fleet, 1)
        assert isinstance(answer, BaselinePrepared), answer
        return answer

    def test_it_has_slots_a_device_and_a_clock_that_never_goes_back(self, run):
        async def body(fleet: Fleet) -> None:
            assert fleet.compile_slots >= 1
            assert fleet.bench_slots >= 1
            assert fleet.device.backend == self.experiment.kernel.language
            before = fleet.now()
            assert await fleet.answers(timeout=0.05) == ()
            assert fleet.now() >= before + 0.04

        run(body)

    def test_source_that_is_no_program_is_rejected_and_the_next_compiles(self, run):
        async def body(fleet: Fleet) -> None:
            _, plan = self.plan(fleet, 0)
            broken = replace(plan.builds[0], source="this is no program")
            work = _compile(UNCOMPILABLE, replace(plan, builds=(broken,)))
            fleet.submit(replace(work, id=7))
            (answer,) = await self.collect(fleet, 1)
            assert isinstance(answer, TrialCompiled)
            assert (answer.work, answer.trial) == (7, UNCOMPILABLE)
            assert answer.rejected is not None
            assert answer.rejected.stage is Stage.COMPILE
            assert answer.span is not None
            assert answer.span.ended >= answer.span.began
            assert len(await self.candidates(fleet, (0,))) == 1

        run(body)

    def test_it_prepares_times_and_confirms(self, run):
        tune = len(self.experiment.shapes.tune)
        every = tune + len(self.experiment.shapes.held_out)

        async def body(fleet: Fleet) -> None:
            prepared = await self.prepared(fleet)
            assert not isinstance(prepared.result, Rejected), prepared.result
            assert len(prepared.result) == every
            assert all(cell.median_ns > 0 for cell in prepared.result)

            candidates = await self.candidates(fleet, (0, 1, 2))
            fleet.submit(MeasureWork(id=1, candidates=tuple(candidates[:2])))
            fleet.submit(MeasureWork(id=2, candidates=(candidates[2],)))
            answers = await self.collect(fleet, 3)
            assert all(isinstance(answer, TrialFinished) for answer in answers), answers
            trials = [answer.trial for answer in answers]
            assert sorted(trials) == [0, 1, 2]
            assert trials.index(0) < trials.index(1), "answers to one work come in its order"
            assert {answer.trial: answer.work for answer in answers} == {0: 1, 1: 1, 2: 2}
            for answer in answers:
                assert isinstance(answer.outcome, Measured), answer.outcome
                assert len(answer.outcome.cells) == tune
                assert all(isinstance(cell, Full) for cell in answer.outcome.cells)
                assert answer.device_seconds > 0
                assert answer.span is not None
                assert answer.span.worker

            nowhere = (1e-9,) * (1 + tune)
            fleet.submit(MeasureWork(candidates=tuple(candidates[:2]), cutoffs=nowhere))
            for answer in await self.collect(fleet, 2):
                assert isinstance(answer.outcome, Measured), answer.outcome
                assert all(isinstance(cell, CutShort) for cell in answer.outcome.cells)

            for process in (0, 1):
                fleet.submit(
                    ConfirmWork(process=process, finalists=tuple(candidates[:2]), extra_checks=(0,))
                )
            confirmed = await self.collect(fleet, 2)
            assert all(isinstance(answer, ConfirmationSampled) for answer in confirmed), confirmed
            assert {answer.process for answer in confirmed} == {0, 1}
            for answer in confirmed:
                assert not answer.failed
                assert answer.extra_checks == (0,)
                seen = {(sample.trial, sample.shape) for sample in answer.samples}
                wanted = {(n, s) for n in (BASELINE, 0, 1) for s in range(every)}
                assert wanted <= seen
                assert all(sample.median_ns > 0 for sample in answer.samples)

            fleet.submit(ExamineWork(winners=tuple(candidates[:2])))
            (examined,) = await self.collect(fleet, 1)
            assert isinstance(examined, WinnersExamined), examined
            assert examined.trials == (0, 1)
            assert not examined.failed

        run(body)

    def test_closing_drops_what_is_pending_and_may_be_repeated(self, run):
        """The last of them: the fleet stays closed."""

        async def body(fleet: Fleet) -> None:
            _, plan = self.plan(fleet, 0)
            for trial in range(4):
                fleet.submit(_compile(trial, plan))
            await fleet.close()
            await fleet.close()

        run(body)


def _compile(trial: int, plan: Plan) -> CompileWork:
    return CompileWork(trial=trial, configuration=Configuration(()), plan=plan)
