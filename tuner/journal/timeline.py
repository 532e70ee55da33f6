"""Where the time of a run went, by kind of work and by worker, from its journals."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

from tuner.journal.facts import (
    BaselinePrepared,
    BenchJoined,
    BenchLost,
    ConfirmationSampled,
    Entry,
    Fact,
    ModelCalled,
    Span,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
    WorkBegan,
    WorkKind,
    WorkLost,
)

KINDS: tuple[WorkKind, ...] = get_args(WorkKind)

SLACK_SECONDS = 0.1
"""By how much the time of day may jump while a process runs."""

_Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTime:
    """One kind of work: how often it was done, and for how long.

    ``busy`` are the seconds of all workers together, ``wall`` those in which at least one of them
    did it.
    """

    kind: WorkKind
    count: int
    busy: float
    wall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTime:
    """One worker's busy seconds, in all and by kind of work."""

    worker: str
    busy: float
    by_kind: dict[WorkKind, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchTime:
    """One bench: for how many ``seconds`` it took work, and was ``idle`` in them.

    ``lost`` says why it takes no more; empty if it was there at the end.
    """

    bench: str
    node: str
    device: str
    seconds: float
    idle: float
    lost: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Where the time of a run went.

    ``seconds`` are those in which a process was at work on it, over ``processes``; in ``waiting``
    of them no work was in progress. Of the workers' busy seconds they ``waited`` for devices that
    other processes used. ``unfinished`` is work that began and has no answer.
    """

    began: float
    seconds: float
    processes: int
    waiting: float
    waited: float
    kinds: tuple[KindTime, ...]
    workers: tuple[WorkerTime, ...]
    benches: tuple[BenchTime, ...]
    lost: tuple[WorkLost, ...]
    unfinished: tuple[WorkBegan, ...]


def spans(facts: Iterable[Fact]) -> Iterator[tuple[WorkKind, Span]]:
    """Each work that was done: its kind, and its worker's span; without what was reused."""
    for fact in facts:
        kind = _kind(fact)
        span = getattr(fact, "span", None)
        if kind is not None and span is not None:
            yield kind, span


def timeline(journals: Sequence[Sequence[Entry]]) -> Timeline:
    """The timeline of a run: of its own journal, and those of its rounds.

    A search that goes on with a copy of another one's facts counts only what it adds.
    """
    distinct = {(e.at, e.t, repr(e.fact)): e for journal in journals for e in journal}
    entries = sorted(distinct.values(), key=lambda one: one.at)
    done = list(spans(entry.fact for entry in entries))
    stopped = [
        (before.at, after.at - after.t)
        for before, after in pairwise(entries)
        if _is_resumed(before, after)
    ]
    began = entries[0].at - entries[0].t if entries else 0.0
    seconds = (entries[-1].at - began if entries else 0.0) - _length(stopped)
    by_kind: dict[WorkKind, list[_Interval]] = defaultdict(list)
    by_worker: dict[str, dict[WorkKind, float]] = defaultdict(lambda: defaultdict(float))
    for kind, span in done:
        by_kind[kind].append(_interval(span))
        by_worker[span.worker][kind] += span.seconds
    covered = _length(union(each for intervals in by_kind.values() for each in intervals))
    return Timeline(
        began=began,
        seconds=seconds,
        processes=1 + len(stopped) if entries else 0,
        waiting=max(0.0, seconds - covered),
        waited=sum(span.waited for _, span in done),
        kinds=tuple(
            KindTime(
                kind=kind,
                count=len(by_kind[kind]),
                busy=_length(by_kind[kind]),
                wall=_length(union(by_kind[kind])),
            )
            for kind in KINDS
            if kind in by_kind
        ),
        workers=tuple(
            WorkerTime(worker=worker, busy=sum(kinds.values()), by_kind=dict(kinds))
            for worker, kinds in sorted(by_worker.items())
        ),
        benches=tuple(_benches(entries, done)),
        lost=tuple(e.fact for e in entries if isinstance(e.fact, WorkLost)),
        unfinished=tuple(one for journal in journals for one in _unfinished(journal)),
    )


def _benches(
    entries: Sequence[Entry], done: Iterable[tuple[WorkKind, Span]]
) -> Iterator[BenchTime]:
    """Every bench that joined or could not be used, in the order in which they came."""
    told: dict[str, BenchJoined | BenchLost] = {}
    devices: dict[str, str] = {}
    since: dict[str, float] = {}
    present: dict[str, list[_Interval]] = defaultdict(list)

    def leave(bench: str, at: float) -> None:
        if bench in since:
            present[bench].append((since.pop(bench), at))

    for before, entry in zip((None, *entries), entries, strict=False):
        if before is not None and _is_resumed(before, entry):
            for bench in list(since):
                leave(bench, before.at)
        match entry.fact:
            case BenchJoined(bench=bench, device=device) as fact:
                told[bench], devices[bench] = fact, device
                since.setdefault(bench, entry.at)
            case BenchLost(bench=bench) as fact:
                told[bench] = fact
                leave(bench, entry.at)
            case _:
                pass
    for bench in list(since):
        leave(bench, entries[-1].at)
    busy: dict[str, list[_Interval]] = defaultdict(list)
    for _, span in done:
        busy[span.worker].append(_interval(span))
    for bench, last in told.items():
        there, seconds = union(present[bench]), _length(present[bench])
        both = _length(union((*there, *busy[bench])))
        worked = seconds + _length(union(busy[bench])) - both
        yield BenchTime(
            bench=bench,
            node=last.node,
            device=devices.get(bench, ""),
            seconds=seconds,
            idle=max(0.0, seconds - worked),
            lost=last.reason if isinstance(last, BenchLost) else "",
        )


def _kind(fact: Fact) -> WorkKind | None:
    match fact:
        case TrialCompiled():
            return "compile"
        case BaselinePrepared():
            return "prepare"
        case TrialFinished():
            return "measure"
        case ConfirmationSampled():
            return "confirm"
        case WinnersExamined():
            return "examine"
        case ModelCalled():
            return "model"
        case _:
            return None


def _is_resumed(before: Entry, after: Entry) -> bool:
    """Whether ``after`` is by a process that began after ``before`` was written."""
    return after.at - after.t > before.at + SLACK_SECONDS


def _unfinished(journal: Sequence[Entry]) -> Iterator[WorkBegan]:
    """Work that began and has no answer of its process: a killed one, or one that is at work."""
    began: dict[int, WorkBegan] = {}
    for before, entry in zip((None, *journal), journal, strict=False):
        if before is not None and _is_resumed(before, entry):
            yield from began.values()
            began.clear()
        if isinstance(entry.fact, WorkBegan):
            began[entry.fact.work] = entry.fact
        else:
            began.pop(getattr(entry.fact, "work", -1), None)
    yield from began.values()


def _interval(span: Span) -> _Interval:
    return span.began, span.ended


def union(intervals: Iterable[_Interval]) -> list[_Interval]:
    """The same times as intervals that do not overlap, in order."""
    found: list[_Interval] = []
    for began, ended in sorted(intervals):
        if found and began <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((began, ended))
    return found


def _length(intervals: Iterable[_Interval]) -> float:
    return sum(ended - began for began, ended in intervals)
