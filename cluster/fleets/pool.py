"""What every real fleet shares: two queues, a set of workers, and the answers that come back.

Owns which worker does what, and what a worker's death means. Decides nothing about the search.
Knows nothing of threads, child processes or Ray: a worker is a port of :mod:`cluster.fleets.slots`.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cluster.fleets.batches import (
    BatchEndedError,
    Batches,
    BenchWork,
    Leave,
    lost_work,
    take,
    unless,
)
from cluster.fleets.slots import NO_ROOM_SECONDS, BenchSlot, CompileSlot, NoRoom, WorkerLost
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
from tuner.errors import EnvironmentProblem, KernelwrightError
from tuner.journal.facts import (
    Answer,
    BaselinePrepared,
    BenchChange,
    BenchJoined,
    BenchLost,
    Span,
    TrialCompiled,
)
from tuner.printable import counted
from tuner.trial import Rejected

RESTART_POLL_SECONDS = 0.5
"""Interval between checks of a worker that died while idle."""

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class _Serving:
    """The task that gives a worker its work, and what ends it."""

    task: asyncio.Task[None]
    leave: Leave


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
        self._compilers: set[CompileSlot] = set()
        self._benches: set[BenchSlot] = set()
        self._serving: dict[CompileSlot | BenchSlot, _Serving] = {}
        self._to_compile: asyncio.Queue[CompileWork] = asyncio.Queue()
        self._to_bench: asyncio.Queue[BenchWork | None] = asyncio.Queue()
        self._answers: asyncio.Queue[Answer | Exception] = asyncio.Queue()
        self._batches = Batches(self._to_bench, self._answers)
        self._setup: BenchSetup | None = None
        self._key = ""
        self._wanted = asyncio.Event()
        self._lost: set[BenchSlot] = set()
        """Benches that are not back yet, or never will be."""
        self._why_lost = ""
        self._told: dict[BenchSlot, str] = {}
        """What was last told of a bench: why it was lost, or nothing since it joined."""
        self._changes: list[BenchChange] = []
        self._missing: dict[BenchSlot, str] = {}
        """Why benches that were lost or refused are not there."""
        self._sound_key = ""
        """The key of the setup for which a bench has a sound baseline."""
        for bench in benches:  # first: opening a device takes longest
            self.add_bench(bench)
        for compiler in compilers:
            self.add_compiler(compiler)

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
        """Why the last one was lost, while none is back."""
        return self._why_lost if self._why_lost and self._benches <= self._lost else None

    @property
    def benches_missing(self) -> str:
        """How many benches were lost or could not be used, and why the last; empty if none."""
        if not self._missing:
            return ""
        count, (bench, reason) = len(self._missing), list(self._missing.items())[-1]
        where = f"{'the last ' if count > 1 else ''}on {bench.node or 'an unknown node'}"
        return f"{counted(count, 'bench', 'benches')} lost ({where}: {reason})"

    @property
    def benches_waiting(self) -> str:
        """A long wait of a bench: its device, and which process uses it; empty without one."""
        return next((found for bench in self._benches if (found := bench.waits_for)), "")

    def bench_changes(self) -> tuple[BenchChange, ...]:
        """Which benches joined and were lost since the last call."""
        changes, self._changes = self._changes, []
        return tuple(changes)

    def add_compiler(self, compiler: CompileSlot) -> None:
        """Give one more compile slot work."""
        leave: Leave = asyncio.get_running_loop().create_future()
        self._compilers.add(compiler)
        self._serve(compiler, self._serve_compiler(compiler, leave), leave)

    def add_bench(self, bench: BenchSlot) -> None:
        """Give one more bench work, once it has prepared."""
        leave: Leave = asyncio.get_running_loop().create_future()
        self._benches.add(bench)
        self._serve(bench, self._serve_bench(bench, leave), leave)

    def _serve(
        self, worker: CompileSlot | BenchSlot, serving: Coroutine[None, None, None], leave: Leave
    ) -> None:
        """Begin to serve a worker; what fails there beside the worker ends the run."""

        def end(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._answers.put_nowait(error)

        task = asyncio.create_task(serving)
        task.add_done_callback(end)
        self._serving[worker] = _Serving(task, leave)

    def retire(self, worker: CompileSlot | BenchSlot, reason: str) -> None:
        """Send a worker nothing more, and close it once it has answered what it has.

        After the last one the fleet waits for another to be added. Does nothing the second time.
        """
        serving = self._serving.get(worker)
        if serving is not None and not serving.leave.done():
            serving.leave.set_result(reason)

    def has(self, worker: CompileSlot | BenchSlot) -> bool:
        """Whether a worker was added and is not closed yet."""
        return worker in self._serving

    def refuse(self, bench: BenchSlot, reason: str) -> None:
        """Note that a bench was not added, since it cannot be used."""
        self._tell(bench, reason)
        del self._told[bench]

    @property
    def real_time(self) -> bool:
        """Its clock is the machine's."""
        return True

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
            for _ in range(len(self._benches) - 1):
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
        every, self._serving = self._serving, {}
        for serving in every.values():
            serving.task.cancel()
        await asyncio.gather(*(one.task for one in every.values()), return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in every), return_exceptions=True)

    async def _serve_compiler(self, compiler: CompileSlot, leave: Leave) -> None:
        while not leave.done():
            work: CompileWork | None = None
            try:
                await unless(compiler.ready(), leave)
                work = await take(self._to_compile, leave)
                if work is None:
                    continue
                began = time.time()
                result = await compiler.compile(work.plan.builds)
                span = Span(worker=compiler.name, began=began, ended=time.time())
                compiled = TrialCompiled(work=work.id, trial=work.trial, span=span)
                if isinstance(result, Rejected):
                    self._answers.put_nowait(replace(compiled, rejected=result))
                else:
                    self._answers.put_nowait(replace(compiled, binaries=result))
            except WorkerLost as lost:
                if not isinstance(lost, NoRoom):
                    _log.warning("lost the compiler %s: %s", compiler.name, lost)
                await self._report_loss(compiler.name, work, lost)
            except Exception as problem:
                self._give_up(compiler.name, work, problem, last=self._compilers == {compiler})
                break
        self._compilers.discard(compiler)
        await self._release(compiler)

    async def _serve_bench(self, bench: BenchSlot, leave: Leave) -> None:
        held: _Preparation | None = None
        work: BenchWork | None = None
        while not leave.done():
            try:
                held = await self._up_to_date(bench, leave, held)
                work = work or await take(self._to_bench, leave)
                # Once more: it may have died, and come up bare, while it waited for work.
                held = await self._up_to_date(bench, leave, held)
                if held is not None and not leave.done():
                    work = await self._carry_out(bench, leave, held, work)
                continue
            except BatchEndedError as ended:
                problem, work = ended.problem, ended.work
            except Exception as error:
                problem = error
            self._lose(bench, str(problem))
            if not isinstance(problem, WorkerLost):
                self._give_up(bench.name, work, problem, last=self._benches == {bench})
                break
            await self._report_loss(bench.name, work, problem)
            work = None
        else:
            if work is not None:
                self._to_bench.put_nowait(work)
            self._lose(bench, leave.result())
        self._benches.discard(bench)
        del self._told[bench]
        await self._release(bench)

    async def _release(self, worker: CompileSlot | BenchSlot) -> None:
        """Close a worker that takes no more work; it is kept until then, for :meth:`close`."""
        await worker.close()
        self._serving.pop(worker, None)

    async def _carry_out(
        self, bench: BenchSlot, leave: Leave, held: _Preparation, work: BenchWork | None
    ) -> BenchWork | None:
        """Do one work, and batches that come up behind it; returns other work that came up."""
        match work:
            case MeasureWork():
                further = partial(self._is_for, held)
                return await self._batches.measure(held.sound(bench), leave, work, further)
            case PrepareWork():
                self._answers.put_nowait(replace(held.answer, work=work.id))
            case ConfirmWork():
                self._answers.put_nowait(await held.sound(bench).confirm(work))
            case ExamineWork():
                self._answers.put_nowait(await held.sound(bench).examine(work))
        return None

    def _is_for(self, held: _Preparation) -> bool:
        """Whether what is queued now is for what a bench has prepared."""
        return self._key == held.key

    async def _up_to_date(
        self, bench: BenchSlot, leave: Leave, held: _Preparation | None
    ) -> _Preparation | None:
        """What the bench has prepared, made anew if that is not what it is wanted for now.

        Also before it takes work: one that comes up late leaves no candidates waiting meanwhile.
        Nothing if it was told to leave before.
        """
        process = await unless(bench.ready(), leave)
        if process is None:
            return None
        self._lost.discard(bench)
        if not self._wanted.is_set():
            await unless(self._wanted.wait(), leave)
        setup, key = self._setup, self._key
        if setup is None:
            return None
        if held is None or held.process != process or held.key != key:
            if held is not None and held.process != process:
                self._tell(bench, "its process was restarted")
            held = _Preparation(process, key, await bench.prepare(setup))
        if not isinstance(held.answer.result, Rejected):
            self._sound_key = key
        elif self._sound_key == key:
            # One bad device among good ones: it would lose all work that it takes.
            raise EnvironmentProblem(
                f"the baseline fails on this bench alone: {held.answer.result.detail}"
            )
        self._tell(bench, "")
        return held

    def _lose(self, bench: BenchSlot, reason: str) -> None:
        """Note that a bench takes no work now."""
        self._lost.add(bench)
        self._why_lost = f"{bench.name}: {reason}"
        self._tell(bench, reason)

    def _tell(self, bench: BenchSlot, lost: str) -> None:
        """Have it journalled that a bench was lost, or joined, unless that was told before."""
        told = self._told.get(bench)
        if told is not None and bool(told) == bool(lost):
            return
        self._told[bench] = lost
        name, node, benches = bench.name, bench.node, list(self._told.values()).count("")
        if lost:
            self._missing[bench] = lost
            _log.warning("lost the bench %s: %s", name, lost)
            change: BenchChange = BenchLost(bench=name, node=node, reason=lost, benches=benches)
        else:
            self._missing.pop(bench, None)
            change = BenchJoined(bench=name, node=node, device=self._device.name, benches=benches)
        self._changes.append(change)

    async def _report_loss(self, worker: str, work: Work | None, lost: WorkerLost) -> None:
        if isinstance(lost, NoRoom):
            await asyncio.sleep(NO_ROOM_SECONDS)
        if work is None:  # it died while idle: its restart takes a moment
            await asyncio.sleep(RESTART_POLL_SECONDS)
        else:
            self._answers.put_nowait(lost_work(work, worker, lost))

    def _give_up(self, worker: str, work: Work | None, problem: Exception, *, last: bool) -> None:
        """One worker cannot go on: others take its work; with the last of its kind the run ends."""
        _log.warning("%s cannot go on: %s", worker, problem)
        if last or not isinstance(problem, KernelwrightError):
            self._answers.put_nowait(problem)
        elif work is not None:
            self._answers.put_nowait(lost_work(work, worker, problem))
