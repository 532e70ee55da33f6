"""The sections of a report that show the device: roofline and occupancy, time, environment."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import get_args

from tuner.candidate import BASELINE
from tuner.journal.facts import Entry, Profile, WorkKind
from tuner.journal.history import History
from tuner.journal.timeline import Timeline, spans, union
from tuner.printable import counted
from tuner.report.document import Facts, Part, Section, Table
from tuner.report.figure import Bar, BarRow, Bars, Interval, Schedule
from tuner.report.text import name_of
from tuner.report.timeline import WORDS, share_text
from tuner.results.result import Result, ShapeOfRun, cell_on

_KINDS: tuple[WorkKind, ...] = ("measure", "compile", "prepare", "confirm", "model", "examine")
_MOST_INTERVALS = 400
"""Intervals of one worker that a page shows; shorter gaps are closed until there are no more."""

_MOST_ROWS = 24


def roofline_section(
    result: Result, history: History, resources: Sequence[tuple[str, ...]] = ()
) -> Section:
    """How close each shape is to what the device allows, and what the kernels use.

    ``resources`` are rows of a table: a kernel, its registers, spilled bytes, occupancy.
    """
    parts: list[Part] = []
    rows = tuple(
        BarRow(label=shape.label, bars=tuple(_share(shape, time) for time in _times(result, shape)))
        for shape in result.shapes
        if shape.least_ns
    )
    if rows:
        parts.append(
            Bars(
                name="roofline",
                title="Share of the memory roofline",
                caption="Time to copy the bytes that the kernel must move at the device's measured "
                "rate (or of an empty launch, if longer) ÷ time of the kernel. 100 % is the limit "
                "of a kernel that is bound by memory.",
                axis="share of the roofline (%)",
                series=("general", "specialised", "baseline"),
                rows=rows,
            )
        )
    else:
        parts.append(
            "No roofline: it needs a cold cache, a device whose copy rate was measured, and "
            "`cost.bytes` in the spec."
        )
    parts += _rates(result, history)
    if resources:
        parts.append(
            Table(
                head=("kernel", "registers per thread", "bytes spilled", "occupancy"),
                rows=tuple(resources),
                numbers=frozenset({1, 2, 3}),
            )
        )
    for profile in (one for fact in history.examinations for one in fact.profiles):
        parts += _profile(result, profile)
    return Section(title="Roofline and occupancy", parts=tuple(parts))


def _times(result: Result, shape: ShapeOfRun) -> Iterator[float | None]:
    """Of the general configuration, the shape's own best if that is another, and the baseline."""
    general, best = cell_on(result.general_cells, shape.index), result.own_best(shape)
    yield general.time_ns if general else None
    yield best.cell.time_ns if best else None
    yield shape.baseline_ns


def _share(shape: ShapeOfRun, time: float | None) -> Bar | None:
    if not time or not shape.least_ns:
        return None
    share = 100 * shape.least_ns / time
    return Bar(value=share, text=f"{share:.0f} %")


def _rates(result: Result, history: History) -> Iterator[Table]:
    """Bytes and operations per second, where the spec gives their number."""
    shapes, cost = history.experiment.shapes, history.experiment.cost
    if cost is None:
        return
    counted = [
        (expression, unit)
        for expression, unit in ((cost.bytes, "GB/s"), (cost.flops, "Gflop/s"))
        if expression is not None
    ]
    rows = []
    for shape, binding in zip(result.shapes, (*shapes.tune, *shapes.held_out), strict=True):
        general, _, baseline = _times(result, shape)
        amounts = [expression.evaluate(binding.symbols) for expression, _ in counted]
        rates = [_rate(int(amount), time) for amount in amounts for time in (baseline, general)]
        rows.append((shape.label, *rates))
    head = [f"{name}, {unit}" for _, unit in counted for name in ("baseline", "general")]
    if head:
        numbers = frozenset(range(1, len(head) + 1))
        yield Table(head=("shape", *head), rows=tuple(rows), numbers=numbers)


def _rate(amount: int, time_ns: float | None) -> str:
    return f"{amount / time_ns:.4g}" if time_ns else "-"


def _profile(result: Result, profile: Profile) -> Iterator[Part]:
    name = "baseline" if profile.trial == BASELINE else name_of(result, profile.trial)
    yield f"Hardware counters of {name} on {result.shapes[profile.shape].label}:"
    yield Facts(
        pairs=tuple(
            (counter, f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}")
            for counter, value in profile.counters
        )
    )


def time_section(found: Timeline, entries: Iterable[Entry]) -> Section:
    """Where the time went: when each worker did what, and a table of all kinds of work."""
    parts: list[Part] = []
    if (figure := _schedule(found, entries)) is not None:
        parts.append(figure)
    parts.append(
        Table(
            head=("work", "count", "busy s", "wall s", "share of the run"),
            rows=(
                *(
                    (
                        WORDS[one.kind],
                        str(one.count),
                        f"{one.busy:.1f}",
                        f"{one.wall:.1f}",
                        share_text(one.wall, found.seconds),
                    )
                    for one in found.kinds
                ),
                (
                    "no work in progress",
                    "",
                    "",
                    f"{found.waiting:.1f}",
                    share_text(found.waiting, found.seconds),
                ),
            ),
            numbers=frozenset({1, 2, 3, 4}),
        )
    )
    if found.benches:
        parts.append(
            Table(
                head=("bench", "node", "device", "present s", "idle s", "lost"),
                rows=tuple(
                    (
                        one.bench.rpartition("/")[2],
                        one.node,
                        one.device,
                        f"{one.seconds:.1f}",
                        f"{one.idle:.1f}",
                        one.lost,
                    )
                    for one in found.benches
                ),
                numbers=frozenset({3, 4}),
            )
        )
    if found.lost:
        parts.append(f"Lost with a worker and sent again: {counted(len(found.lost), 'time')}.")
    return Section(title="Where the time went", parts=tuple(parts))


def _schedule(found: Timeline, entries: Iterable[Entry]) -> Schedule | None:
    busy: dict[str, dict[WorkKind, list[tuple[float, float]]]]
    busy = defaultdict(lambda: defaultdict(list))
    for kind, span in spans(entry.fact for entry in entries):
        began = span.began - found.began
        busy[span.worker][kind].append((max(0.0, began), max(0.0, began) + span.seconds))
    if not busy:
        return None
    most = max(end for kinds in busy.values() for all_ in kinds.values() for _, end in all_)
    names = sorted(busy, key=lambda name: (-_total(busy[name]), name))[:_MOST_ROWS]
    assert set(_KINDS) == set(get_args(WorkKind))
    kinds = [kind for kind in _KINDS if any(kind in busy[name] for name in names)]
    intervals = [
        Interval(row=row, kind=kinds.index(kind), began=began, ended=ended)
        for row, name in enumerate(names)
        for kind, each in busy[name].items()
        for began, ended in _joined(each, most)
    ]
    left_out = len(busy) - len(names)
    more = f" {counted(left_out, 'less busy worker')} left out." if left_out else ""
    return Schedule(
        name="timeline",
        title="What each worker did",
        caption=f"Gaps: the worker waited.{more}",
        axis="seconds since the run began",
        rows=tuple(names),
        kinds=tuple(WORDS[kind] for kind in kinds),
        intervals=tuple(intervals),
    )


def _total(kinds: dict[WorkKind, list[tuple[float, float]]]) -> float:
    return sum(ended - began for each in kinds.values() for began, ended in each)


def _joined(intervals: list[tuple[float, float]], most: float) -> list[tuple[float, float]]:
    """The intervals, with the gaps between them closed that no reader would see."""
    found: list[tuple[float, float]] = []
    for began, ended in union(intervals):
        if found and began - found[-1][1] < most / _MOST_INTERVALS:
            found[-1] = found[-1][0], ended
        else:
            found.append((began, ended))
    return found


def environment_section(
    result: Result, history: History, environments: Sequence[tuple[tuple[str, str], ...]]
) -> Section:
    """Device, driver, compilers and the state of the device; what was not checked."""
    device, epoch = history.device, history.epoch
    pairs: list[tuple[str, str]] = []
    if device is not None:
        memory = f", {device.memory_bytes / 2**30:.0f} GiB" if device.memory_bytes else ""
        pairs.append(("device", f"{device.name} ({device.arch}{memory}), {device.driver}"))
    if epoch is not None:
        workers = f"{epoch.compile_slots} compile, {epoch.bench_slots} bench"
        pairs += [("kernelwright", epoch.version), ("workers", workers)]
    for number, environment in enumerate(environments, 1):
        of = f" ({number} of {len(environments)})" if len(environments) > 1 else ""
        pairs += [(f"{name}{of}", text) for name, text in environment]
    if result.ceilings:
        pairs.append(("ceilings", str(result.ceilings)))
    if result.telemetry:
        pairs.append(("state while timing", str(result.telemetry)))
    measure = history.experiment.measure
    timed = f"{measure.warmup} warm-up launches, {measure.repeats} timed, {measure.cache} cache"
    processes = f"up to {history.experiment.confirm.processes} fresh processes"
    order = "interleaved with the baseline in random order"
    pairs.append(("protocol", f"{timed}; confirmed in {processes}, {order}"))
    parts: list[Part] = [Facts(pairs=tuple(pairs))]
    parts += [f"Note: {note}." for note in result.notes]
    return Section(title="Environment", parts=tuple(parts))


def date_text(created: str) -> str:
    """The date and time of a run's beginning, UTC, or the text itself if it is none."""
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return created
