"""A fleet without devices: deterministic, on a virtual clock, with faults on demand.

For tests of everything above a fleet, and for rehearsing a search on recorded times. Compiling and
timing take virtual seconds in as many slots as asked for; a trial's time is what a cost function
says, times log-normal noise that depends on (seed, trial, shape, process) alone, so that it is the
same however often, and in whatever order, the trial is run.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count

import numpy as np

from tuner.candidate import BASELINE, Candidate
from tuner.device import Device
from tuner.engine.work import (
    CompileWork,
    ConfirmWork,
    ExamineWork,
    MeasureWork,
    PrepareWork,
    Work,
)
from tuner.experiment.model import Cache, Experiment
from tuner.journal.facts import (
    Answer,
    BaselinePrepared,
    ConfirmationSampled,
    Sample,
    Span,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
    WorkLost,
)
from tuner.plan import Binary
from tuner.racing import within_cutoff, within_mean_cutoff
from tuner.search.port import Losses
from tuner.trial import (
    Code,
    Configuration,
    CutShort,
    Full,
    Infeasible,
    Measured,
    Outcome,
    Rejected,
    Stage,
)

Cost = Callable[[Configuration, int], float]
"""Nanoseconds of a configuration on a shape, by its index: tune shapes, then held-out ones."""


class Fault(StrEnum):
    """What may go wrong with a trial, or with the baseline."""

    COMPILE_ERROR = "compile_error"
    COMPILER_LOST = "compiler_lost"
    WRONG = "wrong"
    CRASH = "crash"
    HANG = "hang"
    LOST = "lost"
    LOST_ONCE = "lost_once"
    WRONG_LATER = "wrong_later"
    DEFECT = "defect"


_REJECTIONS = {
    Fault.WRONG: (Stage.VERIFY, Code.WRONG_RESULT, 0.0),
    Fault.CRASH: (Stage.LAUNCH, Code.CRASH, 0.5),
    Fault.HANG: (Stage.LAUNCH, Code.HANG, 1.0),
}
"""Where the fault shows, and the extra seconds that it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Virtual seconds that each kind of work takes; ``bench`` and ``confirm`` per candidate.

    Other processes use the benches' devices for so many times as long: they ``share`` them.
    """

    compile: float = 0.1
    prepare: float = 1.0
    bench: float = 0.05
    confirm: float = 0.1
    share: float = 0.0

    def span(self, worker: str, began: float, seconds: float) -> Span:
        """When a bench is busy with so many seconds of work."""
        waited = self.share * seconds
        return Span(worker=worker, began=began, ended=began + seconds + waited, waited=waited)


@dataclass(slots=True)
class _Slots:
    """When each of several equal workers is free again."""

    free: list[float]

    def take(self, now: float) -> tuple[int, float]:
        """The worker that is free first, and when it can begin."""
        worker = min(range(len(self.free)), key=self.free.__getitem__)
        return worker, max(now, self.free[worker])


@dataclass(slots=True, kw_only=True)
class SimulatedFleet:
    """A :class:`tuner.engine.fleet.Fleet` that makes its answers up.

    ``baseline_ns`` has one time per shape, tune then held-out; ``cost`` gives a configuration's.
    ``noise`` is the standard deviation of the logarithm of every reported time; ``of_trial`` has
    what takes another time for certain trials than ``durations`` say.
    """

    device: Device
    baseline_ns: Sequence[float]
    cost: Cost
    compile_slots: int = 1
    bench_slots: int = 1
    noise: float = 0.0
    seed: int = 0
    faults: Mapping[int, Fault] = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations)
    of_trial: Mapping[int, Durations] = field(default_factory=dict)
    submitted: list[Work] = field(init=False, default_factory=list)
    _clock: float = field(init=False, default=0.0)
    _due: list[tuple[float, int, Answer]] = field(init=False, default_factory=list)
    _order: Iterator[int] = field(init=False, default_factory=count)
    _lost_once: set[int] = field(init=False, default_factory=set)
    _experiment: Experiment | None = field(init=False, default=None)
    _compilers: _Slots = field(init=False)
    _benches: _Slots = field(init=False)

    def __post_init__(self) -> None:
        self._compilers = _Slots([0.0] * self.compile_slots)
        self._benches = _Slots([0.0] * self.bench_slots)

    @property
    def benches_lost(self) -> None:
        """Lost benches are back at once."""
        return

    @property
    def benches_missing(self) -> str:
        """None is."""
        return ""

    @property
    def benches_waiting(self) -> str:
        """None does."""
        return ""

    def bench_changes(self) -> tuple[()]:
        """None."""
        return ()

    @property
    def real_time(self) -> bool:
        """Its clock stands still while a search computes."""
        return False

    def now(self) -> float:
        """Virtual seconds since the fleet was made."""
        return self._clock

    def submit(self, work: Work) -> None:
        """Queue work; :attr:`submitted` keeps all of it, for tests to look at."""
        self.submitted.append(work)
        match work:
            case CompileWork():
                self._compile(work)
            case PrepareWork():
                self._prepare(work)
            case MeasureWork():
                self._measure(work)
            case ConfirmWork():
                self._confirm(work)
            case ExamineWork():
                self._examine(work)

    async def answers(self, timeout: float) -> tuple[Answer, ...]:
        """The next answers, after moving the clock to them; nothing, after ``timeout``."""
        await asyncio.sleep(0)
        until = self._clock + timeout
        if not self._due or self._due[0][0] > until:
            self._clock = until
            return ()
        self._clock = max(self._clock, self._due[0][0])
        ready: list[Answer] = []
        while self._due and self._due[0][0] <= self._clock:
            ready.append(heapq.heappop(self._due)[2])
        return tuple(ready)

    async def close(self) -> None:
        """Drop what is pending."""
        self._due.clear()

    def _answer(self, at: float, answer: Answer) -> None:
        heapq.heappush(self._due, (at, next(self._order), answer))

    def _lose(self, at: float, work: Work, worker: str) -> None:
        lost = WorkLost(work=work.id, task=work.kind, worker=worker, reason="simulated")
        self._answer(at, lost)

    def _compile(self, work: CompileWork) -> None:
        slot, began = self._compilers.take(self._clock)
        seconds = self.of_trial.get(work.trial, self.durations).compile
        ended = self._compilers.free[slot] = began + seconds
        worker = f"compiler:{slot}"
        span = Span(worker=worker, began=began, ended=ended)
        match self.faults.get(work.trial):
            case Fault.COMPILER_LOST:
                self._lose(ended, work, worker)
            case Fault.COMPILE_ERROR:
                rejected = Rejected(
                    stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail="simulated"
                )
                compiled = TrialCompiled(
                    work=work.id, trial=work.trial, rejected=rejected, span=span
                )
                self._answer(ended, compiled)
            case _:
                binaries = tuple(
                    Binary(
                        build=build.digest,
                        code=build.digest.encode(),
                        usage=(),
                        symbols=(),
                        compile_seconds=seconds,
                    )
                    for build in work.plan.builds
                )
                compiled = TrialCompiled(
                    work=work.id, trial=work.trial, span=span, binaries=binaries
                )
                self._answer(ended, compiled)

    def _on_bench(self, seconds: float) -> Span:
        """The first bench that is free, and when it is busy with so much work."""
        bench, began = self._benches.take(self._clock)
        span = self.durations.span(f"simulated:{bench}", began, seconds)
        self._benches.free[bench] = span.ended
        return span

    def _prepare(self, work: PrepareWork) -> None:
        self._experiment = work.setup.experiment
        span = self._on_bench(self.durations.prepare)
        fault = self.faults.get(BASELINE)
        if fault in (Fault.LOST, Fault.LOST_ONCE) and self._loses(BASELINE):
            self._lose(span.ended, work, span.worker)
            return
        result: tuple[Full, ...] | Rejected
        if fault in _REJECTIONS:
            result = self._rejection(fault)
        else:
            result = tuple(
                self._full(BASELINE, shape, self.baseline_ns[shape]) for shape in self._shapes()
            )
        self._answer(span.ended, BaselinePrepared(work=work.id, result=result, span=span))

    def _measure(self, work: MeasureWork) -> None:
        bench, at = self._benches.take(self._clock)
        worker = f"simulated:{bench}"
        for candidate in work.candidates:
            durations = self.of_trial.get(candidate.trial, self.durations)
            seconds = durations.bench
            span = durations.span(worker, at, seconds)
            at = span.ended
            fault = self.faults.get(candidate.trial)
            if fault in (Fault.LOST, Fault.LOST_ONCE) and self._loses(candidate.trial):
                self._lose(at, work, worker)
                break
            if fault in _REJECTIONS:
                at += _REJECTIONS[fault][2]
                span = replace(span, ended=at)
                outcome: Outcome = self._rejection(fault)
            else:
                outcome = self._outcome(candidate, work.cutoffs)
            finished = TrialFinished(
                work=work.id,
                trial=candidate.trial,
                outcome=outcome,
                device_seconds=seconds,
                span=span,
            )
            self._answer(at, finished)
        self._benches.free[bench] = at

    def _confirm(self, work: ConfirmWork) -> None:
        span = self._on_bench(self.durations.confirm * (1 + len(work.finalists)))
        timed = self._timed(work)
        samples = [
            self._sample(BASELINE, shape, self.baseline_ns[shape], work.process, cache)
            for shape, cache in timed
        ]
        failed: list[tuple[int, Rejected]] = []
        for candidate in work.finalists:
            if self.faults.get(candidate.trial) is Fault.WRONG_LATER:
                failed.append((candidate.trial, self._rejection(Fault.WRONG)))
                continue
            samples += [
                self._sample(
                    candidate.trial,
                    shape,
                    self.cost(candidate.configuration, shape),
                    work.process,
                    cache,
                )
                for shape, cache in timed
                if not isinstance(candidate.plan.cells[shape], Infeasible)
            ]
        sampled = ConfirmationSampled(
            work=work.id,
            process=work.process,
            scope=work.scope,
            extra_checks=work.extra_checks,
            samples=tuple(samples),
            failed=tuple(failed),
            span=span,
        )
        self._answer(span.ended, sampled)

    def _examine(self, work: ExamineWork) -> None:
        span = self._on_bench(self.durations.confirm)
        defect = Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail="simulated")
        found = [t for t in work.trials if self.faults.get(t) is Fault.DEFECT]
        failed = tuple((trial, defect) for trial in found if work.checkers)
        examined = WinnersExamined(work=work.id, trials=work.trials, failed=failed, span=span)
        self._answer(span.ended, examined)

    def _outcome(self, candidate: Candidate, cutoffs: Losses) -> Measured:
        tune = self._prepared().shapes.tune
        full = Measured(
            cells=tuple(
                plan
                if isinstance(plan, Infeasible)
                else self._full(candidate.trial, shape, self.cost(candidate.configuration, shape))
                for shape, plan in enumerate(candidate.plan.cells[: len(tune)])
            )
        )
        if within_mean_cutoff(full, [shape.weight for shape in tune], cutoffs):
            return full
        return Measured(
            cells=tuple(
                CutShort(median_ns=cell.median_ns, samples=2, baseline_ns=cell.baseline_ns)
                if isinstance(cell, Full) and not within_cutoff(shape, cell.ratio, cutoffs)
                else cell
                for shape, cell in enumerate(full.cells)
            )
        )

    def _full(self, trial: int, shape: int, time: float) -> Full:
        return Full(
            median_ns=time * self._factor(trial, shape),
            mad_ns=time * self.noise / 2,
            samples=100,
            baseline_ns=self.baseline_ns[shape],
        )

    def _timed(self, work: ConfirmWork) -> list[tuple[int, Cache]]:
        """The shapes and cache states that a process of confirmation times."""
        experiment = self._prepared()
        own, tune = experiment.measure.cache, len(experiment.shapes.tune)
        other: list[Cache] = [] if self.device.is_cpu else ["hot" if own == "cold" else "cold"]
        found: list[tuple[int, Cache]] = []
        for shape in self._shapes():
            part = "tune" if shape < tune else "rest"
            found += [(shape, own)] if work.scope in (part, "all") else []
            found += [(shape, cache) for cache in other if work.scope != "tune"]
        return found

    def _shapes(self) -> range:
        """The tune and held-out shapes of the prepared experiment."""
        shapes = self._prepared().shapes
        return range(len(shapes.tune) + len(shapes.held_out))

    def _prepared(self) -> Experiment:
        if self._experiment is None:
            raise RuntimeError("candidates were sent before the fleet was prepared")
        return self._experiment

    def _sample(self, trial: int, shape: int, time: float, process: int, cache: Cache) -> Sample:
        median = time * self._factor(trial, shape, process)
        return Sample(trial=trial, shape=shape, cache=cache, median_ns=median)

    def _factor(self, trial: int, shape: int, process: int = -1) -> float:
        random = np.random.default_rng([self.seed, (trial + 1) % 2**32, shape, process + 1])
        return float(np.exp(self.noise * random.standard_normal()))

    def _loses(self, trial: int) -> bool:
        """Whether the worker dies with this trial, this time."""
        first = trial not in self._lost_once
        self._lost_once.add(trial)
        return first or self.faults[trial] is Fault.LOST

    def _rejection(self, fault: Fault) -> Rejected:
        stage, code, _ = _REJECTIONS[fault]
        return Rejected(stage=stage, code=code, detail="simulated", shape=0)
