"""What every real fleet shares: two queues, a set of workers, and the answers that come back.

Owns which worker does what, and what a worker's death means. Knows nothing of threads, child
processes or Ray: a worker is one of the two small ports below. Decides nothing about the search.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from tuner.device import Device
from tuner.engine.work import (
    BenchSetup,
    CompileWork,
    ConfirmWork,
    ExamineWork,
    MeasureWork,
    PrepareWork,
    Work,
)
from tuner.errors import KernelwrightError
from tuner.journal.facts import (
    Answer,
    BaselinePrepared,
    ConfirmationSampled,
    Span,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
    WorkLost,
)
from tuner.plan import Binary, Build
from tuner.trial import Rejected

RESTART_POLL_SECONDS = 0.5
"""Interval between checks of a worker that died while idle."""

BenchWork = PrepareWork | MeasureWork | ConfirmWork | ExamineWork


class WorkerLost(Exception):
    """A worker died, or its machinery failed, before it answered; the next call uses a new one."""


class CompileSlot(Protocol):
    """One compile worker."""

    @property
    def name(self) -> str:
        """Names the worker in the journal."""
        ...

    async def ready(self) -> None:
        """Return once it can take work; after a death this may never return."""
        ...

    async def compile(self, builds: tuple[Build, ...]) -> tuple[Binary, ...] | Rejected:
        """Compile every build; raises :class:`WorkerLost`."""
        ...

    async def close(self) -> None:
        """Release its processes."""
        ...


class BenchSlot(Protocol):
    """One device, with everything that may touch it."""

    @property
    def name(self) -> str:
        """Names the worker in the journal where its device is not known yet."""
        ...

    async def ready(self) -> str:
        """Return once it can take work, with a name of its present process.

        A bench that was restarted has another name, and has forgotten what it prepared. After a
        death this may never return.
        """
        ...

    async def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Prepare for every later call; raises :class:`WorkerLost`."""
        ...

    def measure(self, work: MeasureWork) -> AsyncIterator[TrialFinished]:
        """Yield one outcome for each candidate, in order; raises :class:`WorkerLost`."""
        ...

    async def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Time finalists and baseline in a fresh process; raises :class:`WorkerLost`."""
        ...

    async def examine(self, work: ExamineWork) -> WinnersExamined:
        """Run winners under the checkers; raises :class:`WorkerLost`."""
        ...

    async def close(self) -> None:
        """Release the device."""
        ...


class _BatchEndedError(Exception):
    """Why a batch came to no end; never leaves this module."""

    def __init__(self, work: MeasureWork, problem: Exception) -> None:
        super().__init__(str(problem))
        self.work = work
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What a bench prepared, in which of its processes, for setups of which key."""

    process: str
    key: str
    answer: BaselinePrepared

    def sound(self, bench: BenchSlot) -> BenchSlot:
        """The bench; raises :class:`WorkerLost` if the baseline failed on it."""
        if isinstance(self.answer.result, Rejected):
            raise WorkerLost(f"the baseline failed on this bench: {self.answer.result.detail}")
        return bench


class PooledFleet:
    """Port :class:`tuner.engine.fleet.Fleet` over workers that each do one work at a time.

    Args:
        device: the model that every bench holds.
        compilers: one for each compile slot.
        benches: one for each device.

    Must be made inside a running event loop.
    """

    def __init__(
        self, device: Device, compilers: Sequence[CompileSlot], benches: Sequence[BenchSlot]
    ) -> None:
        self._device = device
        self._compilers = tuple(compilers)
        self._benches = tuple(benches)
        self._to_compile: asyncio.Queue[CompileWork] = asyncio.Queue()
        self._to_bench: asyncio.Queue[BenchWork | None] = asyncio.Queue()
        self._answers: asyncio.Queue[Answer | Exception] = asyncio.Queue()
        self._setup: BenchSetup | None = None
        self._key = ""
        self._wanted = asyncio.Event()
        self._lost: dict[BenchSlot, str] = {}
        """Benches that are not back yet, or never will be, and why."""
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
        """How many candidates are compiled at once."""
        return len(self._compilers)

    @property
    def bench_slots(self) -> int:
        """How many benches work at once."""
        return len(self._benches)

    @property
    def benches_lost(self) -> str | None:
        """Why the last one died, while none is back."""
        lost = list(self._lost.values())
        return lost[-1] if lost and len(lost) == len(self._benches) else None

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def submit(self, work: Work) -> None:
        """Queue work for the first free worker of its kind.

        Every bench prepares at once, though the first alone answers: one that began with its first
        candidates would leave them waiting, and its device idle until the search is nearly over.
        """
        if isinstance(work, CompileWork):
            self._to_compile.put_nowait(work)
            return
        if self._setup is None and not isinstance(work, PrepareWork):
            raise ValueError("a bench needs a PrepareWork before any other work")
        self._to_bench.put_nowait(work)
        if isinstance(work, PrepareWork):
            self._setup, self._key = work.setup, work.setup.key
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

    async def _serve_compiler(self, compiler: CompileSlot) -> None:
        while True:
            work: CompileWork | None = None
            try:
                await compiler.ready()
                work = await self._to_compile.get()
                began = time.time()
                result = await compiler.compile(work.plan.builds)
                span = Span(worker=compiler.name, began=began, ended=time.time())
                compiled = TrialCompiled(work=work.id, trial=work.trial, span=span)
                if isinstance(result, Rejected):
                    self._answers.put_nowait(replace(compiled, rejected=result))
                else:
                    self._answers.put_nowait(replace(compiled, binaries=result))
            except WorkerLost as lost:
                await self._report_loss(compiler.name, work, lost)
            except Exception as problem:
                self._retire("compile", compiler.name, work, problem)
                return

    async def _serve_bench(self, bench: BenchSlot) -> None:
        held: _Preparation | None = None
        work: BenchWork | None = None
        while True:
            try:
                process = await bench.ready()
                self._lost.pop(bench, None)
                held = await self._up_to_date(bench, process, held)
                work = work or await self._to_bench.get()
                # Asked again: it may have died, and come up bare, while it waited for work.
                held = await self._up_to_date(bench, await bench.ready(), held)
                work = await self._carry_out(bench, held, work)
                continue
            except _BatchEndedError as ended:
                problem, work = ended.problem, ended.work
            except Exception as error:
                problem = error
            self._lost[bench] = f"{bench.name}: {problem}"
            if not isinstance(problem, WorkerLost):
                self._retire("bench", bench.name, work, problem)
                return
            await self._report_loss(bench.name, work, problem)
            work = None

    async def _carry_out(
        self, bench: BenchSlot, held: _Preparation, work: BenchWork | None
    ) -> BenchWork | None:
        """Do one work, and batches that come up behind it; returns other work that came up."""
        match work:
            case MeasureWork():
                return await self._measure_batches(bench, held, work)
            case PrepareWork():
                self._answers.put_nowait(replace(held.answer, work=work.id))
            case ConfirmWork():
                self._answers.put_nowait(await held.sound(bench).confirm(work))
            case ExamineWork():
                self._answers.put_nowait(await held.sound(bench).examine(work))
        return None

    async def _measure_batches(
        self, bench: BenchSlot, held: _Preparation, first: MeasureWork
    ) -> BenchWork | None:
        """Measure batches while they come; each is at the bench before the one in front is through.

        So a bench never waits for what comes next, which takes as long as a candidate on Ray.
        Returns work that came up and is none for what the bench has prepared.

        Raises:
            _BatchEndedError: a batch came to no end, nor did the one behind it.
        """
        running = asyncio.create_task(self._measure(held.sound(bench), first))
        behind: asyncio.Task[None] | None = None
        try:
            while True:
                work = await self._next_while(running)
                if isinstance(work, MeasureWork) and self._key == held.key:
                    behind = asyncio.create_task(self._measure(bench, work))
                try:
                    await running
                except _BatchEndedError:
                    if behind is not None:
                        await self._lose(bench, behind)
                    elif work is not None:
                        self._to_bench.put_nowait(work)
                    raise
                if behind is None:
                    return work
                running, behind = behind, None
        finally:
            for task in filter(None, (running, behind)):
                task.cancel()

    async def _next_while(self, running: "asyncio.Task[None]") -> BenchWork | None:
        """The next work, unless there is none until a batch has ended."""
        coming = asyncio.create_task(self._to_bench.get())
        try:
            await asyncio.wait((running, coming), return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()  # what has not come yet stays in the queue

    async def _measure(self, bench: BenchSlot, work: MeasureWork) -> None:
        try:
            async for finished in bench.measure(work):
                self._answers.put_nowait(replace(finished, work=work.id))
        except Exception as problem:
            raise _BatchEndedError(work, problem) from problem

    async def _lose(self, bench: BenchSlot, batch: "asyncio.Task[None]") -> None:
        """Report that a batch is lost, since it was behind one that was."""
        try:
            await batch
        except _BatchEndedError as ended:
            self._answers.put_nowait(_lost(ended.work, bench.name, ended.problem))

    async def _up_to_date(
        self, bench: BenchSlot, process: str, held: _Preparation | None
    ) -> _Preparation:
        """What the bench has prepared, made anew if that is not what it is wanted for now.

        Also before it takes work: one that comes up late leaves no candidates waiting meanwhile.
        """
        await self._wanted.wait()
        setup, key = self._setup, self._key
        assert setup is not None
        if held is not None and held.process == process and held.key == key:
            return held
        return _Preparation(process, key, await bench.prepare(setup))

    async def _report_loss(self, worker: str, work: Work | None, lost: WorkerLost) -> None:
        if work is None:  # it died while idle: its restart takes a moment
            await asyncio.sleep(RESTART_POLL_SECONDS)
        else:
            self._answers.put_nowait(_lost(work, worker, lost))

    def _retire(
        self,
        kind: Literal["compile", "bench"],
        worker: str,
        work: Work | None,
        problem: Exception,
    ) -> None:
        """One worker cannot go on: others take its work; with the last of its kind the run ends."""
        self._working[kind] -= 1
        if not isinstance(problem, KernelwrightError) or self._working[kind] == 0:
            self._answers.put_nowait(problem)
        elif work is not None:
            self._answers.put_nowait(_lost(work, worker, problem))


def _lost(work: Work, worker: str, problem: Exception) -> WorkLost:
    return WorkLost(
        work=work.id, task=work.kind, trials=work.trials, worker=worker, reason=str(problem)
    )
