"""Advice on a budget: exceeded, or too small to try all, to decide or to narrow an interval."""

from collections.abc import Iterator

from tuner.experiment.odd_shapes import odd_shapes
from tuner.journal.history import History
from tuner.journal.search_clock import TOLD_SECONDS
from tuner.printable import counted
from tuner.results.statistics import Comparison

EXCEEDED = 1.1
"""Times the budget that a run may take without a remark."""


def time_advice(history: History, comparison: Comparison | None) -> Iterator[str]:
    """Lines on a finished run whose budget was exceeded, or left ``comparison`` undecided."""
    given, confirm = history.experiment.search.seconds, history.experiment.confirm
    if not history.finished:
        return
    if history.clock.spent > EXCEEDED * given:
        yield (
            f"the run took {history.clock.spent - given:.0f} s longer than search.seconds allows: "
            + "; ".join(_causes(history))
        )
    if history.ended == "seconds":
        yield from _untried(history)
    if comparison is None:
        return
    if comparison.processes < confirm.processes and not comparison.decided:
        yield (
            f"no time was left to confirm the tune shapes in more than {comparison.processes} "
            f"processes (confirm.processes is {confirm.processes}): a longer search.seconds may "
            "decide what is unclear"
        )
    elif confirm.until and comparison.width > confirm.until:
        short = comparison.processes < confirm.processes
        yield (
            f"the interval is wider than confirm.until after {comparison.processes} processes: "
            f"a larger {'search.seconds' if short else 'confirm.processes'} would narrow it"
        )


def _causes(history: History) -> Iterator[str]:
    """Why a run exceeded its budget: waits for devices in use, and the rest if they are less."""
    waited = history.clock.waited
    if waited >= TOLD_SECONDS:
        yield f"its benches waited {waited:.0f} s for devices in use by other processes"
    if waited < max(TOLD_SECONDS, history.clock.spent - history.experiment.search.seconds):
        yield "preparing and the fewest checks and timings took longer than expected"


def _untried(history: History) -> Iterator[str]:
    """What a search that time ended had left for confirming, and would have needed to try all.

    That is also what the run took longer than it should have.
    """
    search, template = history.experiment.search, history.experiment.template
    tried, spent = history.outcomes.total(), history.clock.spent_searching
    if template is None or spent is None:
        return
    most = min(search.trials + history.merged, template.points)
    if not 0 < tried < most:
        return
    kept, exceeded = search.seconds - spent, max(0.0, history.clock.spent - search.seconds)
    more = exceeded + history.clock.searched / tried * (most - tried)
    took, odd = history.clock.spent - spent, len(odd_shapes(history.experiment))
    left = f"then left {kept:.0f} of {search.seconds:.0f} s for confirming, which took {took:.0f} s"
    if odd:
        left += f" and checks finalists on {counted(odd, 'odd shape')}"
    if kept < 1:
        left = "by when search.seconds were over"
    yield (
        f"the search tried {tried} of at most {most} configurations, {left}: about {more:.0f} s "
        "more of --seconds would try all"
    )
