"""The seconds of a run's budget: what is spent, and what confirming still needs.

Knows nothing of searches and rounds.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner.device import Device
from tuner.engine.fleet import Fleet
from tuner.experiment.model import Experiment
from tuner.journal.history import History
from tuner.report.estimate import Estimate, estimate
from tuner.trial import Full
from workers.checkers.examination import tools


class RoundsBudget:
    """What the rounds of a run have spent in this process, and what its end will take."""

    def __init__(self) -> None:
        self.spent = 0.0
        """Seconds that this process counted; those of earlier ones too, once they are known."""
        self._final = 0.0
        self.confirming = 0.0
        """Seconds that confirming a round's search will take."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the seconds that this takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent += time.monotonic() - began

    def expect(
        self,
        experiment: Experiment,
        fleet: Fleet,
        baseline: Sequence[Full],
        searched: History | None = None,
    ) -> None:
        """Note what confirmations will take, at the pace of a search."""
        expected = run_estimate(experiment, fleet, baseline)
        pace = expected.pace(searched) if searched else 1.0
        self._final = expected.final_seconds * pace
        self.confirming = expected.confirm_seconds * pace - self._final

    def committed(self, known: float) -> float:
        """Seconds that are spent, at least those ``known``, or that the end will take."""
        self.spent = max(known, self.spent)
        return self.spent + self._final


def run_estimate(
    experiment: Experiment,
    fleet: Fleet,
    baseline: Sequence[Full] = (),
    *,
    rounds: int = 1,
    space: int | None = None,
    history: History | None = None,
) -> Estimate:
    """What a run takes, or what is left of it.

    Args:
        experiment: its budgets and shapes count.
        fleet: does the work.
        baseline: its times, once it is prepared.
        rounds: of agents.
        space: how many feasible configurations its template has, if there is one.
        history: what is done already.
    """
    return estimate(
        experiment,
        fleet.device,
        space,
        checker_bytes=checker_bytes(fleet.device),
        compile_slots=fleet.compile_slots,
        bench_slots=fleet.bench_slots,
        rounds=rounds,
        baseline_ns=[cell.median_ns for cell in baseline],
        trials=None if history is None else _trials_left(history, space),
        spent=0.0 if history is None else history.clock.spent,
        confirmed=0 if history is None else len(history.confirmations),
    )


def _trials_left(history: History, space: int | None) -> int:
    """How many a search has still to do."""
    if history.ended is not None:
        return len(history.open())
    most = history.experiment.search.trials + history.merged
    if space is not None:
        most = min(most, space)
    return max(0, most - history.outcomes.total())


def reserve_for(fleet: Fleet, opening: float, *, rest: bool) -> Callable[[History], float]:
    """The seconds of a budget to leave for confirming, or for what is left of it.

    Args:
        fleet: confirms.
        opening: seconds that the budget must hold besides: those of bringing up the fleet.
        rest: whether winners are confirmed on held-out shapes and checked too.
    """
    known: list[Estimate] = []

    def reserve(history: History) -> float:
        if not known:
            known.append(run_estimate(history.experiment, fleet, history.baseline))
        return opening + known[0].confirming(history, rest=rest)

    return reserve


def checker_bytes(device: Device) -> int:
    """The largest shape that a checker of this machine takes for a device; 0 without any."""
    return max((tool.most_bytes for tool in tools(device, Path())), default=0)
