"""Advice on the seconds of a budget: exceeded, or too few to decide a verdict."""

from collections.abc import Iterator

from tuner.journal.history import History
from tuner.results.statistics import Comparison

EXCEEDED = 1.1
"""Times the budget that a run may take without a remark."""


def time_advice(history: History, comparison: Comparison | None) -> Iterator[str]:
    """Lines on a finished run whose budget was exceeded, or left ``comparison`` undecided."""
    given, most = history.experiment.search.seconds, history.experiment.confirm.processes
    if not history.finished:
        return
    if history.spent > EXCEEDED * given:
        yield (
            f"the run took {history.spent - given:.0f} s longer than search.seconds allows: "
            "preparing and the fewest checks and timings took longer than expected"
        )
    if comparison and comparison.processes < most and not comparison.decided:
        yield (
            f"no time was left to confirm in more than {comparison.processes} of {most} "
            "processes: a longer search.seconds may decide what is unclear"
        )
