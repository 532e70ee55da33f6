"""How fast the best configuration was found: figures over trials and over seconds of searching."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.experiment.model import Experiment
from tuner.journal.facts import Entry, TrialFinished
from tuner.journal.history import History
from tuner.report.document import Table
from tuner.report.figure import Line, Lines
from tuner.trial import Measured

MOST_POINTS = 1200
"""Single trials that a figure shows; of more, evenly spaced ones."""

MOST_RISES = 12
"""Rises of the best speedup that the table shows, the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search of a run: the run's own, or that of a round, which ``name`` says."""

    name: str
    experiment: Experiment
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class _Point:
    """A finished trial: how many there were, the seconds, its speedup and the best so far."""

    trial: int
    seconds: float
    speedup: float | None
    best: float | None


def convergence(searches: Sequence[Search]) -> tuple[Lines | Table, ...]:
    """Figures over trials and over seconds, and the last rises as a table.

    Nothing before the first measured trial.
    """
    points: list[_Point] = []
    marks: list[tuple[str, tuple[float, float]]] = []
    for search in searches:
        last = points[-1] if points else _Point(0, 0.0, None, None)
        marks.append((search.name, (last.trial, last.seconds)))
        points += _points(search, last)
    found = sorted(point.speedup for point in points if point.speedup)
    if not found:
        return ()
    shown = [point for point in points if point.speedup]
    shown = shown[:: -(-len(shown) // MOST_POINTS)]
    climbed = [point for point in points if point.best]
    floor = min(found[len(found) // 4], climbed[0].best or found[0])
    named = marks if len(marks) > 1 else []

    def figure(name: str, axis: str, title: str, place: int) -> Lines:
        def x(point: _Point) -> float:
            return (point.trial, point.seconds)[place]

        return Lines(
            name=f"convergence-{name}",
            title=title,
            caption="The search's own figures, not yet confirmed. A dot is one configuration that "
            "was measured in full on every tune shape; slow ones lie on the lower edge.",
            x_axis=axis,
            y_axis="speedup over the baseline (×)",
            lines=(
                Line(
                    name="best so far",
                    style="steps",
                    points=_climb([(x(point), point.best or 0.0) for point in climbed]),
                ),
                Line(
                    name="one configuration",
                    style="points",
                    points=tuple((x(point), point.speedup or 0.0) for point in shown),
                ),
            ),
            floor=floor,
            marks=tuple((began[place], called) for called, began in named),
            reference=(1.0, "baseline"),
        )

    rises = [
        (str(point.trial), f"{point.seconds:.1f}", f"{point.best:.3f}×")
        for before, point in zip([None, *climbed], climbed, strict=False)
        if before is None or (point.best or 0.0) > (before.best or 0.0)
    ]
    return (
        figure("trials", "configurations tried", "Best speedup against trials", 0),
        figure("seconds", "seconds of searching", "Best speedup against time", 1),
        Table(
            head=("configurations tried", "seconds of searching", "best speedup so far"),
            rows=tuple(rises[-MOST_RISES:]),
            numbers=frozenset({0, 1, 2}),
        ),
    )


def _points(search: Search, last: _Point) -> list[_Point]:
    history, points, best = History(search.experiment), [], last.best
    done: set[int] = set()
    for entry in search.entries:
        history.apply(entry)
        fact = entry.fact
        if not isinstance(fact, TrialFinished) or fact.trial in done:
            continue
        done.add(fact.trial)
        loss = history.loss(fact.trial)
        outcome = fact.outcome
        whole = isinstance(outcome, Measured) and outcome.general and outcome.complete
        speedup = 1 / loss if loss and whole else None
        best = max(filter(None, (best, speedup)), default=None)
        points.append(
            _Point(last.trial + len(done), last.seconds + history.searched, speedup, best)
        )
    return points


def _climb(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points at which the value rises, and the last one."""
    kept = [
        point
        for number, point in enumerate(points)
        if number == 0 or point[1] > points[number - 1][1]
    ]
    return tuple(kept if kept[-1] == points[-1] else [*kept, points[-1]])
