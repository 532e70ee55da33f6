"""What every real fleet shares: two queues, a set of workers, and the answers that come back.

Owns who works on what and what a worker's death means (:class:`tuner.engine.fleet.Lost`). Knows
nothing of threads, child processes or Ray: a worker is one of the two small ports below. Decides
nothing about the search.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from tuner.device import Device
from tuner.engine.fleet import (
    Answer,
    Benched,
    BenchJob,
    BenchSetup,
    Compiled,
    CompileJob,
    Confirmed,
    ConfirmJob,
    Examined,
    ExamineJob,
    Job,
    Lost,
    Prepared,
    PrepareJob,
)
from tuner.errors import KernelwrightError
from tuner.plan import Binary, Build
from tuner.trial import Rejected

REBIRTH_SECONDS = 0.5
"""Between two looks at a worker that is not there."""

BenchingJob = PrepareJob | BenchJob | ConfirmJob | ExamineJob


class WorkerLost(Exception):
    """A worker died, or its machinery failed, before it answered; the next call finds a new one."""


class Compiler(Protocol):
    """One compile slot."""

    async def ready(self) -> None:
        """Return once it can take work; after a death this may never return."""
        ...

    async def compile(self, builds: tuple[Build, ...]) -> tuple[Binary, ...] | Rejected:
        """Compile every build; raises :class:`WorkerLost`."""
        ...

    async def close(self) -> None:
        """Release its processes."""
        ...


class Bench(Protocol):
    """One device, with everything that may touch it."""

    async def ready(self) -> str:
        """Return once it can take work, with the name of its present life.

        A bench that was born again has another name, and has forgotten what it prepared. After a
        death this may never return.
        """
        ...

    async def prepare(self, setup: BenchSetup) -> Prepared:
        """Make oracle and baseline ready, for every later call; raises :class:`WorkerLost`."""
        ...

    def run(self, job: BenchJob) -> AsyncIterator[Benched]:
        """Yield one outcome for each candidate, in order; raises :class:`WorkerLost`."""
        ...

    async def confirm(self, job: ConfirmJob) -> Confirmed:
        """Time finalists and baseline in a fresh process; raises :class:`WorkerLost`."""
        ...

    async def examine(self, job: ExamineJob) -> Examined:
        """Put winners under the checkers; raises :class:`WorkerLost`."""
        ...

    async def close(self) -> None:
        """Release the device."""
        ...


class _BatchEndedError(Exception):
    """Why a batch came to no end, and what is left of it; never leaves this module."""

    def __init__(self, job: BenchJob, problem: Exception) -> None:
        super().__init__(str(problem))
        self.job = job
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What a bench prepared in one of its lives."""

    life: str
    setup: BenchSetup
    answer: Prepared

    def sound(self, bench: Bench) -> Bench:
        """The bench, unless the baseline failed on it: then it is as good as lost."""
        if isinstance(self.answer.result, Rejected):
            raise WorkerLost(f"the baseline failed on this bench: {self.answer.result.detail}")
        return bench


class PooledFleet:
    """Port :class:`tuner.engine.fleet.Fleet` over workers that each take one job at a time.

    Args:
        device: the model that every bench holds.
        compilers: one for each compile slot.
        benches: one for each device.

    Must be made inside a running event loop.
    """

    def __init__(
        self, device: Device, compilers: Sequence[Compiler], benches: Sequence[Bench]
    ) -> None:
        self._device = device
        self._compilers = tuple(compilers)
        self._benches = tuple(benches)
        self._to_compile: asyncio.Queue[CompileJob] = asyncio.Queue()
        self._to_bench: asyncio.Queue[BenchingJob | None] = asyncio.Queue()
        self._answers: asyncio.Queue[Answer | Exception] = asyncio.Queue()
        self._setup: BenchSetup | None = None
        self._wanted = asyncio.Event()
        self._working = {"compile": len(self._compilers), "bench": len(self._benches)}
        self._tasks = [
            *(asyncio.create_task(self._serve_compiler(worker)) for worker in self._compilers),
            *(asyncio.create_task(self._serve_bench(worker)) for worker in self._benches),
        ]

    @property
    def device(self) -> Device:
        """The device model of every bench."""
        return self._device

    @property
    def compile_slots(self) -> int:
        """How many compile jobs run at once."""
        return len(self._compilers)

    @property
    def bench_slots(self) -> int:
        """How many bench jobs run at once."""
        return len(self._benches)

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def submit(self, job: Job) -> None:
        """Queue a job for the first free worker of its kind.

        Every bench prepares at once, though the first alone answers: one that began with its first
        candidates would leave them waiting, and its device idle until the search is nearly over.
        """
        if isinstance(job, CompileJob):
            self._to_compile.put_nowait(job)
            return
        if self._setup is None and not isinstance(job, PrepareJob):
            raise ValueError("a bench needs a PrepareJob before any other job")
        self._to_bench.put_nowait(job)
        if isinstance(job, PrepareJob):
            self._setup = job.setup
            self._wanted.set()
            for _ in self._benches[1:]:
                self._to_bench.put_nowait(None)

    async def answers(self, timeout: float) -> tuple[Answer, ...]:
        """Wait for at least one answer, at most ``timeout`` seconds.

        Raises:
            KernelwrightError: a worker found that this machine cannot do the work at all.
        """
        try:
            received = [await asyncio.wait_for(self._answers.get(), timeout)]
        except TimeoutError:
            return ()
        while not self._answers.empty():
            received.append(self._answers.get_nowait())
        answers = tuple(one for one in received if not isinstance(one, Exception))
        for problem in (one for one in received if isinstance(one, Exception)):
            if not answers:
                raise problem
            self._answers.put_nowait(problem)
        return answers

    async def close(self) -> None:
        """Drop pending jobs and release every worker; closing twice does nothing."""
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await asyncio.gather(
            *(compiler.close() for compiler in self._compilers),
            *(bench.close() for bench in self._benches),
            return_exceptions=True,
        )

    async def _serve_compiler(self, compiler: Compiler) -> None:
        while True:
            job: CompileJob | None = None
            try:
                await compiler.ready()
                job = await self._to_compile.get()
                result = await compiler.compile(job.builds)
                self._answers.put_nowait(Compiled(trial=job.trial, result=result))
            except WorkerLost as lost:
                await self._mourn(job, lost)
            except Exception as problem:
                self._retire("compile", job, problem)
                return

    async def _serve_bench(self, bench: Bench) -> None:
        held: _Preparation | None = None
        job: BenchingJob | None = None
        while True:
            try:
                held = await self._up_to_date(bench, await bench.ready(), held)
                job = job or await self._to_bench.get()
                # Asked again: it may have died, and come up bare, while it waited for the job.
                held = await self._up_to_date(bench, await bench.ready(), held)
                job = await self._carry_out(bench, held, job)
                continue
            except _BatchEndedError as ended:
                problem, job = ended.problem, ended.job
            except Exception as error:
                problem = error
            if not isinstance(problem, WorkerLost):
                self._retire("bench", job, problem)
                return
            await self._mourn(job, problem)
            job = None

    async def _carry_out(
        self, bench: Bench, held: _Preparation, job: BenchingJob | None
    ) -> BenchingJob | None:
        """Do one job, and batches that come up behind it; returns another job that came up."""
        match job:
            case BenchJob():
                return await self._run_batches(bench, held, job)
            case PrepareJob():
                self._answers.put_nowait(held.answer)
            case ConfirmJob():
                self._answers.put_nowait(await held.sound(bench).confirm(job))
            case ExamineJob():
                self._answers.put_nowait(await held.sound(bench).examine(job))
        return None

    async def _run_batches(
        self, bench: Bench, held: _Preparation, first: BenchJob
    ) -> BenchingJob | None:
        """Run batches while they come; each is at the bench before the one in front is through.

        So a bench never waits for what comes next, which takes as long as a candidate on Ray.
        Returns a job that came up and is none for what the bench has prepared.

        Raises:
            _BatchEndedError: a batch came to no end, nor did the one behind it.
        """
        running = asyncio.create_task(self._take_in(held.sound(bench), first))
        behind: asyncio.Task[None] | None = None
        try:
            while True:
                job = await self._next_while(running)
                if isinstance(job, BenchJob) and self._setup is held.setup:
                    behind = asyncio.create_task(self._take_in(bench, job))
                try:
                    await running
                except _BatchEndedError:
                    if behind is not None:
                        await self._lose(behind)
                    elif job is not None:
                        self._to_bench.put_nowait(job)
                    raise
                if behind is None:
                    return job
                running, behind = behind, None
        finally:
            for task in filter(None, (running, behind)):
                task.cancel()

    async def _next_while(self, running: "asyncio.Task[None]") -> BenchingJob | None:
        """The next job, unless there is none until a batch has ended."""
        coming = asyncio.create_task(self._to_bench.get())
        try:
            await asyncio.wait((running, coming), return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()  # what has not come yet stays in the queue

    async def _take_in(self, bench: Bench, job: BenchJob) -> None:
        try:
            async for benched in bench.run(job):
                self._answers.put_nowait(benched)
                job = _without(job, benched.trial)
        except Exception as problem:
            raise _BatchEndedError(job, problem) from problem

    async def _lose(self, batch: "asyncio.Task[None]") -> None:
        """Take in that a batch is lost, since it was behind one that was."""
        try:
            await batch
        except _BatchEndedError as ended:
            self._answers.put_nowait(Lost(job=ended.job, reason=str(ended.problem)))

    async def _up_to_date(self, bench: Bench, life: str, held: _Preparation | None) -> _Preparation:
        """What the bench has prepared, made anew if that is not what it is wanted for now.

        Also before it takes a job: one that comes up late leaves no candidates waiting meanwhile.
        """
        await self._wanted.wait()
        setup = self._setup
        assert setup is not None
        if held is not None and held.life == life and held.setup is setup:
            return held
        return _Preparation(life, setup, await bench.prepare(setup))

    async def _mourn(self, job: Job | None, lost: WorkerLost) -> None:
        if job is None:  # it died while idle: whoever restarts it needs a moment
            await asyncio.sleep(REBIRTH_SECONDS)
        else:
            self._answers.put_nowait(Lost(job=job, reason=str(lost)))

    def _retire(
        self, kind: Literal["compile", "bench"], job: Job | None, problem: Exception
    ) -> None:
        """One worker cannot go on: others take its job; with the last of its kind the run ends."""
        self._working[kind] -= 1
        if not isinstance(problem, KernelwrightError) or self._working[kind] == 0:
            self._answers.put_nowait(problem)
        elif job is not None:
            self._answers.put_nowait(Lost(job=job, reason=str(problem)))


def _without(job: BenchJob, trial: int) -> BenchJob:
    return replace(job, candidates=tuple(c for c in job.candidates if c.trial != trial))
