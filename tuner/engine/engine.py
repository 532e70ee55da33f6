"""The engine: runs a client's work on a fleet, and journals every fact.

A client is a state machine that decides (:class:`tuner.engine.session.Session`) or a list of
requests (:class:`tuner.engine.requests.Requests`). The engine owns the order of journal and acts,
the work in flight and the clock. It decides nothing about a search, and knows nothing of Ray, of
signals or of terminals.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any, Protocol

from tuner.engine.fleet import Fleet
from tuner.engine.requests import Requests, Result
from tuner.engine.retries import Retries, require_answers
from tuner.engine.work import (
    Command,
    ConfirmWork,
    ExamineWork,
    Finish,
    MeasureWork,
    PrepareWork,
    Propose,
    Work,
)
from tuner.errors import RunInterrupted
from tuner.journal.facts import (
    Answer,
    BaselinePrepared,
    BenchJoined,
    BenchLost,
    Entry,
    Fact,
    TrialFinished,
    TrialProposed,
    WorkBegan,
    WorkLost,
)
from tuner.search.port import Proposer
from tuner.trial import Configuration, Rejected

TICK_SECONDS = 0.5
"""Longest wait for answers, so that time budgets and stop requests are noticed."""

LOST_SECONDS = 600.0
"""How long the last bench may be gone, say while a node restarts, before a run ends."""

_ANNOUNCED = PrepareWork | ConfirmWork | ExamineWork
"""Work that takes more than a second: its begin is journalled too."""

_log = logging.getLogger(__name__)

Answers = list[tuple[int, Configuration | None]]
"""Trials and their configurations; ``None`` once the space is exhausted."""

Observer = Callable[[Fact], None]
"""Is told every fact that was journalled, for metrics; it must be quick, and not fail."""


def unobserved(_: Fact) -> None:
    """The observer that does nothing."""


class JournalSink(Protocol):
    """Where entries go before anything that follows from them is done."""

    def append(self, *entries: Entry) -> None:
        """Write entries, in order."""
        ...

    def sync(self) -> None:
        """Return once everything appended is on disk."""
        ...


class Client(Protocol):
    """What the engine works for, one at a time."""

    def decide(self, t: float, /) -> list[Command]:
        """What to do next, in order; empty if nothing can be started yet."""
        ...

    def apply(self, entry: Entry) -> None:
        """Apply what was journalled."""
        ...

    def exhausted(self) -> None:
        """Note that the proposer has nothing left to propose."""
        ...


def proposals(proposer: Proposer, asked: Sequence[Propose]) -> Answers:
    """What a proposer answers, in order, told what each request tells."""
    answers: Answers = []
    for command in asked:
        for trial, losses in command.tell:
            proposer.tell(trial, losses)
        answers.append((command.trial, proposer.ask(command.trial)))
    return answers


class Engine:
    """Serves clients one after the other, over one fleet that is opened when it is needed.

    Args:
        open_fleet: brings up the workers, in the running event loop.
        clock: a monotonic clock, used until the fleet is open; then the fleet's.
        wall: the time of day in Unix seconds.
        observe: is told every fact that is journalled.
    """

    def __init__(
        self,
        open_fleet: Callable[[], Awaitable[Fleet]],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        observe: Observer = unobserved,
    ) -> None:
        self._open_fleet = open_fleet
        self._clock = clock
        self._wall = wall
        self._observe = observe
        self._fleet: Fleet | None = None
        self._ids = count()
        self._began = clock()
        self._prepared: tuple[str, BaselinePrepared] | None = None
        self._in_flight: dict[int, Work] = {}
        """Work that was sent, less the candidates of it that are answered."""
        self._outbox: list[Work] = []
        self._received: deque[Answer] = deque()
        self._coming: asyncio.Future[tuple[Answer, ...]] | None = None
        self._asked: list[Propose] = []
        self._asking: asyncio.Future[Answers] | None = None
        self._retries = Retries()
        self._lost_since: float | None = None
        self._joined: dict[str, BenchJoined] = {}
        """The benches of the fleet that joined and are not lost, by name."""

    @property
    def opened(self) -> bool:
        """Whether the fleet is open."""
        return self._fleet is not None

    @property
    def benches_waiting(self) -> str:
        """A long wait of a bench: its device, and which process uses it; empty without one."""
        return "" if self._fleet is None else self._fleet.benches_waiting

    async def fleet(self) -> Fleet:
        """The fleet, opened by the first call."""
        if self._fleet is None:
            self._fleet = await self._open_fleet()
            # The fleet's clock goes on where the other one stood.
            self._began = self._fleet.now() - self.now()
            self._clock = self._fleet.now
            _log.info(
                "opened a fleet over %s: %d compile slots, %d benches",
                self._fleet.device.name,
                self._fleet.compile_slots,
                self._fleet.bench_slots,
            )
        return self._fleet

    def now(self) -> float:
        """Seconds since this engine was made, to the precision of a journal."""
        return round(self._clock() - self._began, 6)

    def work_id(self) -> int:
        """A number that no other work of this engine has."""
        return next(self._ids)

    def append(self, journal: JournalSink, fact: Fact) -> Entry:
        """Journal a fact; returns its entry, with the time."""
        (entry,) = self._append(journal, [fact])
        return entry

    def _append(self, journal: JournalSink, facts: Sequence[Fact]) -> list[Entry]:
        at, t = round(self._wall(), 6), self.now()
        entries = [Entry(fact, at=at, t=t) for fact in facts]
        journal.append(*entries)
        for fact in facts:
            self._observe(fact)
        return entries

    async def drive(
        self, client: Client, journal: JournalSink, proposer: Proposer | None = None
    ) -> AsyncGenerator[float]:
        """Serve a client until it finishes, yielding the time after each step.

        Entries that announce work are synced before the work is sent. One sync covers all pending
        entries, so a slow disk makes larger groups.

        Raises:
            DeviceNeeded: the client wants work that the fleet has no device for.
            RunInterrupted: no bench is left, or work that the run needs lost its worker too often.
        """
        fleet = await self.fleet()
        await self._settle_all(fleet)
        try:
            while self._act(client, journal, proposer):
                if sending := self._announce(client, journal):
                    await asyncio.to_thread(journal.sync)
                for work in sending:
                    fleet.submit(work)
                    self._in_flight[work.id] = work
                yield self.now()
                if not self._received:
                    await self._receive(fleet)
                changes = fleet.bench_changes()
                for change in changes:
                    self._joined.pop(change.bench, None)
                    if isinstance(change, BenchJoined):
                        self._joined[change.bench] = change
                self._record(client, journal, changes)
                self._take_proposals(client, journal)
                facts = [*chain.from_iterable(map(self._settle, self._received))]
                self._received.clear()
                self._record(client, journal, facts)
                require_answers(facts)
            journal.sync()
            yield self.now()
        finally:
            self._asked.clear()
            if self._asking is not None:  # what it answers now is not journalled, so never was
                await asyncio.wait([self._asking])
                self._asking = None

    async def results(self, journal: JournalSink, commands: Sequence[Command]) -> list[Result]:
        """Have facts journalled and work done; the answers, as they came.

        Raises:
            DeviceNeeded: the fleet has no device for such work.
        """
        requests = Requests(commands)
        async for _ in self.drive(requests, journal):
            pass
        return requests.results

    async def give_back(self, journal: JournalSink, reason: str) -> None:
        """Release every device until a client needs the fleet again, which then prepares anew."""
        if self._fleet is None:
            return
        await self.close()
        self._fleet = self._prepared = self._lost_since = None
        self._in_flight.clear()
        self._received.clear()
        for one in self._joined.values():
            lost = BenchLost(bench=one.bench, node=one.node, reason=reason, benches=0)
            self.append(journal, lost)
        self._joined.clear()
        _log.info("gave the devices back: %s", reason)

    async def close(self) -> None:
        """Release every device, if any was taken."""
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        if self._fleet is not None:
            await self._fleet.close()

    def _act(self, client: Client, journal: JournalSink, proposer: Proposer | None) -> bool:
        """Do what the client wants now; returns whether it goes on."""
        while commands := client.decide(self.now()):
            facts: list[Fact] = []
            for command in commands:
                if isinstance(command, Finish):
                    return False
                if isinstance(command, Propose):
                    self._asked.append(command)
                elif isinstance(command, Work):
                    self._outbox.append(replace(command, id=self.work_id()))
                else:
                    facts.append(command)
            self._record(client, journal, facts)
            self._ask(client, journal, proposer)
        self._ask(client, journal, proposer)  # what waited for earlier answers
        return True

    def _ask(self, client: Client, journal: JournalSink, proposer: Proposer | None) -> None:
        """Have the search propose all that was asked for, one call at a time.

        In a thread, so that answers are taken meanwhile, unless the fleet's clock stands still.
        """
        if not self._asked or self._asking is not None:
            return
        if proposer is None:
            raise ValueError("a client that wants proposals needs a proposer")
        asked, self._asked = self._asked, []
        if self._fleet is not None and self._fleet.real_time:
            self._asking = asyncio.ensure_future(asyncio.to_thread(proposals, proposer, asked))
        else:
            self._propose(client, journal, proposals(proposer, asked))

    def _take_proposals(self, client: Client, journal: JournalSink) -> None:
        """Record what was proposed beside the event loop, if that is through."""
        if self._asking is not None and self._asking.done():
            answers, self._asking = self._asking.result(), None
            self._propose(client, journal, answers)

    def _propose(self, client: Client, journal: JournalSink, answers: Answers) -> None:
        proposed = [TrialProposed(trial=trial, configuration=c) for trial, c in answers if c]
        self._record(client, journal, proposed)
        if len(proposed) < len(answers):
            client.exhausted()

    def _record(self, client: Client, journal: JournalSink, facts: Sequence[Fact]) -> None:
        """Journal facts that came together with one write, then have them applied."""
        if facts:
            for entry in self._append(journal, facts):
                client.apply(entry)

    def _announce(self, client: Client, journal: JournalSink) -> list[Work]:
        """Journal that long work begins; returns what is to be sent, less what is known already."""
        outbox, self._outbox = self._outbox, []
        sent = []
        for work in outbox:
            if isinstance(work, PrepareWork) and self._reuse(work):
                continue
            if isinstance(work, _ANNOUNCED):
                began = WorkBegan(
                    work=work.id, task=work.kind, trials=work.trials, attempt=work.attempt
                )
                self._record(client, journal, [began])
            sent.append(work)
        return sent

    def _reuse(self, work: PrepareWork) -> bool:
        """Answer from the fleet's last preparation, if it is of the same kernel and inputs."""
        if self._prepared is None or self._prepared[0] != work.setup.key:
            return False
        self._in_flight[work.id] = work
        self._received.append(replace(self._prepared[1], work=work.id, span=None))
        return True

    def _settle(self, answer: Answer) -> tuple[Answer, ...]:
        """Note that work is answered; returns what of it is journalled.

        That is nothing for work that was given up and is answered after all.
        """
        work = None if answer.work is None else self._in_flight.pop(answer.work, None)
        if work is None:
            return ()
        match answer:
            case WorkLost():
                _log.warning(
                    "%s died with work %d (%s): %s",
                    answer.worker,
                    work.id,
                    work.kind,
                    answer.reason,
                )
                facts, again = self._retries.settle(work, answer)
                if again is not None:
                    self._outbox.append(replace(again, id=self.work_id()))
                return facts
            case TrialFinished() if isinstance(work, MeasureWork):
                left = tuple(c for c in work.candidates if c.trial != answer.trial)
                if left:
                    self._in_flight[work.id] = replace(work, candidates=left)
            case BaselinePrepared(result=result) if isinstance(work, PrepareWork):
                if not isinstance(result, Rejected):
                    self._prepared = work.setup.key, answer
        return (answer,)

    async def _receive(self, fleet: Fleet) -> None:
        """Take the answers that come within a tick, or before proposals do.

        Raises:
            EnvironmentProblem: no bench came back.
        """
        # Never cancelled: an answer on its way would be lost.
        self._coming = self._coming or asyncio.ensure_future(fleet.answers(TICK_SECONDS))
        awaited: list[asyncio.Future[Any]] = [self._coming]
        if self._asking is not None:
            awaited.append(self._asking)
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if self._coming.done():
            coming, self._coming = self._coming, None
            self._received.extend(coming.result())
        if (lost := fleet.benches_lost) is None:
            self._lost_since = None
            return
        self._lost_since = self._lost_since or fleet.now()
        if fleet.now() - self._lost_since >= LOST_SECONDS:
            raise RunInterrupted(f"no bench came back within {LOST_SECONDS:.0f} s; {lost}")

    async def _settle_all(self, fleet: Fleet) -> None:
        """Wait for what an earlier client left in flight: it would disturb what is timed next."""
        while self._in_flight:
            if not self._received:
                await self._receive(fleet)
            while self._received:
                self._settle(self._received.popleft())
        self._outbox, self._retries = [], Retries()
