"""How fast the best configuration was found: figures over trials and over seconds of searching."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.experiment.model import Experiment
from tuner.journal.facts import Entry, Fact, TrialFinished
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
class Point:
    """A finished trial: how many there were, the seconds, its speedup and the best so far."""

    trial: int
    seconds: float
    speedup: float | None
    best: float | None


class Climb:
    """The points of one search, from a history that grows; ``name`` is the search's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.points: list[Point] = []
        self._done: set[int] = set()

    def apply(self, history: History, fact: Fact) -> None:
        """Take the point of a fact that was just applied to the history, if it makes one."""
        if not isinstance(fact, TrialFinished) or fact.trial in self._done:
            return
        self._done.add(fact.trial)
        loss = history.loss(fact.trial)
        outcome = fact.outcome
        whole = isinstance(outcome, Measured) and outcome.general and outcome.complete
        speedup = 1 / loss if loss and whole else None
        before = self.points[-1].best if self.points else None
        best = max(filter(None, (before, speedup)), default=None)
        self.points.append(Point(len(self._done), history.clock.searched, speedup, best))


def convergence(searches: Sequence[Search]) -> tuple[Lines | Table, ...]:
    """Figures over trials and over seconds, and the last rises as a table.

    Nothing before the first measured trial.
    """
    return figures([_climb_of(search) for search in searches])


def figures(climbs: Sequence[Climb]) -> tuple[Lines | Table, ...]:
    """The same of searches that were followed, one after the other."""
    points: list[Point] = []
    marks: list[tuple[str, tuple[float, float]]] = []
    for climb in climbs:
        last = points[-1] if points else Point(0, 0.0, None, None)
        marks.append((climb.name, (last.trial, last.seconds)))
        points += (_after(last, point) for point in climb.points)
    found = sorted(point.speedup for point in points if point.speedup)
    if not found:
        return ()
    shown = [point for point in points if point.speedup]
    shown = shown[:: -(-len(shown) // MOST_POINTS)]
    climbed = [point for point in points if point.best]
    floor = min(found[len(found) // 4], climbed[0].best or found[0])
    named = marks if len(marks) > 1 else []

    def figure(name: str, axis: str, title: str, place: int) -> Lines:
        def x(point: Point) -> float:
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
                    points=_rises([(x(point), point.best or 0.0) for point in climbed]),
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


def _climb_of(search: Search) -> Climb:
    history, climb = History(search.experiment), Climb(search.name)
    for entry in search.entries:
        history.apply(entry)
        climb.apply(history, entry.fact)
    return climb


def _after(last: Point, point: Point) -> Point:
    """A point of a search that followed another, which ended with ``last``."""
    best = max(filter(None, (last.best, point.best)), default=None)
    return Point(last.trial + point.trial, last.seconds + point.seconds, point.speedup, best)


def _rises(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points at which the value rises, and the last one."""
    kept = [
        point
        for number, point in enumerate(points)
        if number == 0 or point[1] > points[number - 1][1]
    ]
    return tuple(kept if kept[-1] == points[-1] else [*kept, points[-1]])
