"""Batches of candidates on one bench: each is there before the one in front of it is through.

So a bench never waits for what comes next, which takes as long as a candidate on Ray. Owns what
becomes of both when the bench dies.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from cluster.fleets.slots import BenchSlot, NoRoom
from tuner.engine.work import ConfirmWork, ExamineWork, MeasureWork, PrepareWork, Work
from tuner.journal.facts import Answer, WorkLost

T = TypeVar("T")

Leave = asyncio.Future[str]
"""Done once a worker is to take no more work, with the reason."""

BenchWork = PrepareWork | MeasureWork | ConfirmWork | ExamineWork


class BatchEndedError(Exception):
    """Why a batch came to no end."""

    def __init__(self, work: MeasureWork, problem: Exception) -> None:
        super().__init__(str(problem))
        self.work = work
        self.problem = problem


class Batches:
    """Takes batches from the queue of all benches, and puts outcomes among the answers."""

    def __init__(
        self,
        queue: "asyncio.Queue[BenchWork | None]",
        answers: "asyncio.Queue[Answer | Exception]",
    ) -> None:
        self._queue = queue
        self._answers = answers

    async def measure(
        self, bench: BenchSlot, leave: Leave, first: MeasureWork, further: Callable[[], bool]
    ) -> BenchWork | None:
        """Measure batches until none comes, or the bench is to leave.

        Returns work that came up and is no batch, or none that ``further`` allows.

        Raises:
            BatchEndedError: a batch came to no end, nor did the one behind it.
        """
        running = asyncio.create_task(self._measure(bench, first))
        behind: asyncio.Task[None] | None = None
        try:
            while True:
                await asyncio.sleep(0)  # benches that wait for their first batch come before
                work = await unless(self._queue.get(), running, leave)
                if isinstance(work, MeasureWork) and further():
                    behind = asyncio.create_task(self._measure(bench, work))
                try:
                    await running
                except BatchEndedError:
                    if behind is not None:
                        await self._lose_batch(bench, behind)
                    elif work is not None:
                        self._queue.put_nowait(work)
                    raise
                if behind is None:
                    return work
                running, behind = behind, None
        finally:
            for task in filter(None, (running, behind)):
                task.cancel()

    async def _measure(self, bench: BenchSlot, work: MeasureWork) -> None:
        try:
            async for finished in bench.measure(work):
                self._answers.put_nowait(replace(finished, work=work.id))
        except Exception as problem:
            raise BatchEndedError(work, problem) from problem

    async def _lose_batch(self, bench: BenchSlot, batch: "asyncio.Task[None]") -> None:
        """Report that a batch is lost, since it was behind one that was."""
        try:
            await batch
        except BatchEndedError as ended:
            self._answers.put_nowait(lost_work(ended.work, bench.name, ended.problem))


async def take(queue: asyncio.Queue[T], *ends: "asyncio.Future[Any]") -> T | None:
    """The next item of a queue, as soon as there is one; nothing once one of ``ends`` is done."""
    if queue.empty() or any(end.done() for end in ends):
        return await unless(queue.get(), *ends)
    return queue.get_nowait()


async def unless(coroutine: Coroutine[Any, Any, T], *ends: "asyncio.Future[Any]") -> T | None:
    """What a coroutine returns; it is cancelled for nothing if one of ``ends`` is done before.

    It runs in the current task, which an end cancels as :func:`asyncio.timeout` does: a task of its
    own would cost more than all else that a driver does for a trial.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before, over, cancelled = task.cancelling(), False, False

    def cancel(_: "asyncio.Future[Any]") -> None:
        nonlocal cancelled
        if not over and not cancelled:
            cancelled = task.cancel()

    if any(end.done() for end in ends):
        coroutine.close()
        return None
    for end in ends:
        end.add_done_callback(cancel)
    try:
        return await coroutine  # what is still in a queue when it is cancelled stays there
    except asyncio.CancelledError:
        if not cancelled or task.cancelling() > before + 1:
            raise
        return None
    finally:
        over = True
        if cancelled:
            task.uncancel()
        for end in ends:
            end.remove_done_callback(cancel)


def lost_work(work: Work, worker: str, problem: Exception) -> WorkLost:
    """That a worker was lost before it answered this work."""
    return WorkLost(
        work=work.id,
        task=work.kind,
        trials=work.trials,
        worker=worker,
        reason=str(problem),
        counted=not isinstance(problem, NoRoom),
    )
