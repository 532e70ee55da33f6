"""The live table of ``watch``: runs as rich shows them in a terminal of 80 columns or more."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cluster.watching.follower import RunPicture
from tuner.engine.progress import duration
from tuner.journal.counts import WorkerCounts
from tuner.printable import printable_line
from tuner.report.convergence import Climb
from tuner.report.timeline import share_text

MOST_BENCHES = 16
"""Benches of a run that have a line of their own."""

MOST_LOST = 3
"""Lost work that is told, the last."""

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
    return Group(*(part for picture in pictures for part in _run(picture, now)))


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
    if climb := _climb([one.climb for one in picture.searches.values()]):
        yield _indented(climb)
    if picture.counts.workers:
        yield _workers(picture, now)
    for lost in picture.counts.lost[-MOST_LOST:]:
        again = "given up" if lost.final else "sent again"
        yield _indented(f"lost: {lost.task} on {lost.worker}: {lost.reason} ({again})", "red")
    yield Text()


def _progress(picture: RunPicture) -> str:
    lasted = duration(picture.seconds)
    if not picture.round:
        return f"{picture.words}; {lasted} in all"
    place = f"round {picture.round} of {picture.rounds}"
    return f"{place}: {picture.words}; {picture.tried} trials, {lasted} in all"


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


def _workers(picture: RunPicture, now: float) -> Table:
    """A row for each bench, and one for all compile workers together."""
    workers = picture.counts.workers
    benches = {name: one for name, one in workers.items() if one.is_bench}
    compilers = [one for one in workers.values() if "compile" in one.busy]
    live = picture.state == "running"
    found = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    found.add_column("  worker", overflow="ellipsis", no_wrap=True, ratio=1)
    for name in ("trials", "busy", *(("last minute", "last answer") if live else ())):
        found.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    shown = sorted(benches)[: MOST_BENCHES if len(benches) <= MOST_BENCHES else MOST_BENCHES - 1]
    for name in shown:
        found.add_row(*_row(name, [benches[name]], now, live=live))
    if rest := [one for name, one in benches.items() if name not in shown]:
        found.add_row(*_row(f"{len(rest)} more benches", rest, now, live=live))
    if compilers:
        found.add_row(*_row(_compile_workers(len(compilers)), compilers, now, live=live))
    return found


def _row(name: str, workers: Sequence[WorkerCounts], now: float, *, live: bool) -> list[Text]:
    busy = sum(sum(one.busy.values()) for one in workers)
    trials = sum(one.trials for one in workers)
    row = [f"  {name}", str(trials) if trials else "", duration(busy)]
    if live:
        share = sum(one.share(now) for one in workers)
        answered = max(one.answered for one in workers)
        row += [share_text(share, len(workers)), f"{duration(max(0.0, now - answered))} ago"]
    return [_text(cell) for cell in row]


def _compile_workers(count: int) -> str:
    return "1 compile worker" if count == 1 else f"{count} compile workers"


def _indented(text: str, style: str = "") -> RenderableType:
    return Padding(_text(text, style), (0, 0, 0, 2))


def _text(text: str, style: str = "") -> Text:
    """Text from outside, which is neither markup nor moves the cursor."""
    return Text(printable_line(text), style=style)
