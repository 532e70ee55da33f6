"""Figures as plain data: what is drawn, with its title, caption and axes.

Owns no drawing: :mod:`tuner.report.svg` draws them for the page, :mod:`tuner.report.plots` with
matplotlib for papers. ``name`` is the file name of a figure without its ending.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value with its interval, if it has one, and the text that is shown beside it."""

    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """A category with one bar per series; ``None`` where a series has no value."""

    label: str
    bars: tuple[Bar | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars from 0, grouped by category.

    ``reference`` is drawn as a line across all categories, with its label in the legend.
    """

    name: str
    title: str
    caption: str
    axis: str
    series: tuple[str, ...]
    rows: tuple[BarRow, ...]
    reference: tuple[float, str] | None = None

    @property
    def end(self) -> float:
        """The last value shown: a whisker beyond three times the largest bar is cut there.

        Otherwise one wide interval would make all bars too short to compare.
        """
        bars = [bar for row in self.rows for bar in row.bars if bar]
        largest = max([*(bar.value for bar in bars), *(self.reference or ())[:1]], default=0.0)
        return max([*(min(bar.high or 0.0, 3 * largest) for bar in bars), largest])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points in order of x: a staircase that keeps each value until the next, or single points."""

    name: str
    style: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines over a common x axis; ``marks`` are named positions on it, such as rounds.

    Values below ``floor`` are drawn at the lower edge.
    """

    name: str
    title: str
    caption: str
    x_axis: str
    y_axis: str
    lines: tuple[Line, ...]
    floor: float
    marks: tuple[tuple[float, str], ...] = ()
    reference: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A value for each pair of two parameters' values; ``None`` where there is none.

    ``cells`` has one tuple per row; ``cell_axis`` says what they are.
    """

    name: str
    title: str
    caption: str
    x_axis: str
    y_axis: str
    cell_axis: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """When one row was busy with one kind of work, in the unit of the figure's axis."""

    row: int
    kind: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Intervals of several rows on a common time axis."""

    name: str
    title: str
    caption: str
    axis: str
    rows: tuple[str, ...]
    kinds: tuple[str, ...]
    intervals: tuple[Interval, ...]


Figure = Bars | Lines | Grid | Schedule


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers from ``low`` to ``high``."""
    if not high > low:
        return [low]
    exact = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(exact))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= exact * 0.999)
    first = int(-(-low // step))
    found = []
    while (tick := first * step) <= high + step * 1e-9:
        found.append(tick)
        first += 1
    return found
