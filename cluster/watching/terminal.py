"""The live table of ``watch``: runs as rich shows them in a terminal of 80 columns or more."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cluster.watching.follower import RunPicture
from cluster.watching.workers import losses, worker_table
from tuner.engine.progress import duration
from tuner.printable import counted, printable_line
from tuner.report import document
from tuner.report.convergence import Climb

MOST_COLUMNS = 110
"""Of a wider terminal no more is used, so that the eye finds a row's end."""

MOST_BENCHES = 16
"""Benches of a run that have a line of their own."""

_LEVELS = "▁▂▃▄▅▆▇█"
_LEVELS_WIDTH = 40
_STYLES = {
    "running": "green",
    "finished": "bold",
    "waiting": "yellow",
    "interrupted": "yellow",
    "unreadable": "red",
}


def table(pictures: Sequence[RunPicture], now: float) -> RenderableType:
    """All runs, one below the other.

    Args:
        pictures: the runs.
        now: Unix seconds, which workers' answers are dated against.
    """
    parts = Group(*(part for picture in pictures for part in _run(picture, now)))
    return Constrain(parts, MOST_COLUMNS)


def _run(picture: RunPicture, now: float) -> Iterator[RenderableType]:
    head = Table.grid(expand=True, padding=(0, 0, 0, 2))
    state = _text(f"{picture.device}  {picture.state}".lstrip(), _STYLES.get(picture.state, ""))
    head.add_column(overflow="fold", ratio=1)
    head.add_column(justify="right", no_wrap=True, min_width=state.cell_len)
    head.add_row(_text(picture.name, "bold"), state)
    yield head
    if picture.problem:
        yield _indented(picture.problem, "red")
        yield Text()
        return
    yield _indented(_progress(picture))
    if picture.verdict:
        yield _indented(picture.verdict, "green")
    elif picture.speedup is not None:
        yield _indented(f"best {picture.speedup:.2f}× (not confirmed) {picture.configuration}")
    if climb := _climb(picture.climbs):
        yield _indented(climb)
    workers = worker_table(picture, now, MOST_BENCHES)
    if workers.rows:
        yield _workers(workers)
    for worker, what, why, after in losses(picture.counts):
        yield _indented(f"lost: {what} {worker}: {why} ({after})", "red")
    yield Text()


def _progress(picture: RunPicture) -> str:
    lasted = duration(picture.seconds)
    if not picture.round:
        return f"{picture.words}; {lasted} in all"
    place = f"round {picture.round} of {picture.rounds}"
    return f"{place}: {picture.words}; {counted(picture.tried, 'trial')}, {lasted} in all"


def _climb(climbs: Sequence[Climb]) -> str:
    """The best speedup so far over all trials, as a row of bars."""
    found = (point.best for climb in climbs for point in climb.points if point.best)
    best = list(accumulate(found, max))
    if not best:
        return ""
    count = min(len(best), _LEVELS_WIDTH)
    chosen = [best[(place + 1) * len(best) // count - 1] for place in range(count)]
    low, high = best[0], best[-1]
    steps = len(_LEVELS) - 1
    bars = (
        _LEVELS[round(steps * (one - low) / (high - low))] if high > low else _LEVELS[0]
        for one in chosen
    )
    return f"{''.join(bars)} {low:.2f}× to {high:.2f}×"


def _workers(given: document.Table) -> Table:
    found = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    found.add_column(f"  {given.head[0]}", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in given.head[1:]:
        found.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for name, *cells in given.rows:
        found.add_row(_text(f"  {name}"), *map(_text, cells))
    return found


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(_text(text, style), (0, 0, 0, 2))


def _text(text: str, style: str = "") -> Text:
    """Text from outside, which is neither markup nor moves the cursor."""
    return Text(printable_line(text), style=style)
