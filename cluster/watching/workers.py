"""The rows that the live table and the page show of a run's workers."""

import re
from collections.abc import Sequence

from cluster.watching.follower import RunPicture
from tuner.engine.progress import duration
from tuner.journal.counts import RunCounts, WorkerCounts
from tuner.printable import counted
from tuner.report.document import Table
from tuner.report.timeline import share_text

_UUID = re.compile("([0-9a-f]{8})[0-9a-f]{24}$")

MOST_BENCHES = 256
"""Benches that a page lists."""

MOST_LOST = 8
"""Lost work, and lost benches, that are told."""


def worker_table(picture: RunPicture, now: float, most: int = MOST_BENCHES) -> Table:
    """A row for each bench, at most ``most``, and one for all compile workers together.

    Args:
        picture: the run; while it is running, each row also says how busy a worker is.
        now: Unix seconds.
        most: rows for benches; where there are more, the last one is for all the others.
    """
    workers = picture.counts.workers
    benches = [(name, one) for name, one in sorted(workers.items()) if one.is_bench]
    compilers = [one for one in workers.values() if "compile" in one.busy]
    shown = benches if len(benches) <= most else benches[: most - 1]
    groups = [(_short(name), [one]) for name, one in shown]
    if others := [one for _, one in benches[len(shown) :]]:
        groups.append((counted(len(others), "more bench", "more benches"), others))
    if compilers:
        groups.append((counted(len(compilers), "compile worker"), compilers))
    live = picture.state == "running"
    head = ("worker", "trials", "busy", *(("last minute", "last answer") if live else ()))
    return Table(
        head=head,
        numbers=frozenset(range(1, len(head))),
        rows=tuple(_row(name, group, now, live=live) for name, group in groups),
    )


def _short(worker: str) -> str:
    """A bench's name with the first eight digits of its device's UUID."""
    return _UUID.sub(r"\1", worker)


def losses(counts: RunCounts) -> list[tuple[str, str, str, str]]:
    """What was lost, the last of it: the worker, what, why, and what came of it."""
    work = [
        (_short(one.worker), one.task, one.reason, "given up" if one.final else "sent again")
        for one in counts.lost
    ]
    benches = [(_short(name), "bench", why, "not back") for name, why in counts.gone.items()]
    return [*work[-MOST_LOST:], *benches[-MOST_LOST:]]


def _row(name: str, group: Sequence[WorkerCounts], now: float, *, live: bool) -> tuple[str, ...]:
    trials = sum(one.trials for one in group)
    busy = sum(sum(one.busy.values()) for one in group)
    row = (name, str(trials) if trials else "", duration(busy))
    if not live:
        return row
    share = sum(one.share(now) for one in group)
    answered = max(one.answered for one in group)
    ago = f"{duration(max(0.0, now - answered))} ago" if answered else ""
    return (*row, share_text(share, len(group)), ago)
