"""Rechecks a timing: is the kernel slower where each of its launches has inputs of its own?

A kernel that remembers its inputs with their outputs passes every check and is timed copying the
outputs, wherever it keeps them. So its timing is compared with bursts of the same launches in which
each finds inputs that it never saw, and one is checked for its answer. A kernel that changes what
the device reports is found out by another clock.

A processor remembers, too: which way each branch of a kernel went on inputs that it meets again. So
a kernel that is slower on its own inputs is launched on known ones after the processor has
forgotten. If that explains most of it, the samples are corrected to what the kernel takes on new
inputs.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.trial import Code
from workers.devices.port import DeviceFailure

REMEMBERED, REMEMBERED_ON_GPU = 0.1, 0.05
"""Share of a launch's time by which one on new inputs may be slower, besides the noise: honest
kernels vary with their inputs, on an H200 by 1 to 3 % (193 kernels, 2026-12-01)."""
LEAST_NS = 5_000
"""A launch of fewer nanoseconds may vary by all of them."""
UNREPORTED, UNREPORTED_NS = 0.25, 5_000
"""Suspicious: so large a part of a launch's time, and so many nanoseconds, beyond what it is for
the baseline, pass on the host's clock alone."""
TURNS = 5
"""Timings in a row after which a suspicious kernel is rejected."""
CLOCK_TURNS = 12
"""The same of the host's clock. Its readings are those of the last few timings together: so many
contain several that are independent."""
TIMES = 5
"""Bursts whose fastest counts, for kernels whose time varies."""
BRANCHES = 0.5
"""Share of what new inputs cost that forgotten branches must explain: few are still known then."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """Nanoseconds of launches, one burst after the other.

    Of the kernel and the baseline on inputs of their own, and of the baseline on known ones.
    """

    own_ns: float
    baseline_own_ns: float
    baseline_known_ns: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """The samples to believe, and how their kernel fares on inputs that it never saw.

    Where a processor's branches alone make it slower there, the samples are ``corrected``: as much
    longer as it is, beside the baseline.

    ``unseen`` is the time of launches on such inputs ÷ that of the timing; ``None`` if no inputs
    can vary.
    """

    samples: list[float]
    unseen: float | None = None
    corrected: bool = False


def accept_or_retime(
    samples: list[float],
    again: Callable[[], list[float]],
    *,
    own: Callable[[], float] | None,
    baseline_own: Callable[[], float],
    baseline_known: Callable[[], float],
    unreported_ns: Callable[[], float],
    single: Callable[[bool], float] | None = None,
    remembered: float = REMEMBERED,
) -> Accepted:
    """The samples, or those of a repeated timing that no launch on other inputs contradicts.

    The machine may slow down, so a suspicious kernel is timed again. How much launches on known and
    on new inputs may differ follows from how much the baseline's do meanwhile: a processor predicts
    branches better on data that it has met before.

    Args:
        samples: nanoseconds per launch of the timing.
        again: repeats the timing.
        own: nanoseconds per launch of a burst in which each launch has inputs that the kernel never
            saw; ``None`` if no inputs can vary.
        baseline_own: the same of the baseline.
        baseline_known: nanoseconds per launch of a burst of the baseline on the timed contents.
        unreported_ns: what passed per launch of the last timings on the host's clock but not on the
            device's, less the baseline's.
        single: nanoseconds of one launch on the timed contents; if told so, after the device has
            forgotten which way branches went. ``None`` where it predicts none.
        remembered: share of a launch's time by which one on new inputs may be slower.

    Raises:
        DeviceFailure: launches on inputs of their own were slower each time.
    """
    doubts = _Doubts(own, baseline_own, baseline_known, unreported_ns, single, remembered)
    if not (doubts.unreported(samples) or doubts.slower(samples)):
        return doubts.accepted(samples)
    for turn in itertools.count(1):
        samples = again()
        clock = doubts.unreported(samples)
        if not (found := clock or doubts.slower(samples)):
            return doubts.accepted(samples)
        if turn >= (CLOCK_TURNS if clock else TURNS):
            break
    raise DeviceFailure(Code.SLOWER_AGAIN, f"{found}, {turn} times in a row")


@dataclass(slots=True)
class _Doubts:
    """What makes a timing suspicious, in words: see :func:`accept_or_retime`.

    ``unseen`` is that of :class:`Accepted`; ``slowed`` is by how much its samples are corrected.
    """

    own: Callable[[], float] | None
    baseline_own: Callable[[], float]
    baseline_known: Callable[[], float]
    unreported_ns: Callable[[], float]
    single: Callable[[bool], float] | None
    remembered: float
    unseen: float | None = None
    slowed: float = 1.0

    def accepted(self, samples: list[float]) -> Accepted:
        """The samples, corrected."""
        corrected = self.slowed > 1.0
        if corrected:
            samples = [self.slowed * ns for ns in samples]
        return Accepted(samples, self.unseen, corrected)

    def unreported(self, samples: Sequence[float]) -> str:
        """Whether more time passes on the host's clock than the device reports."""
        more_ns = self.unreported_ns()
        if more_ns > max(UNREPORTED_NS, UNREPORTED * statistics.median(samples)):
            return f"is not as fast as the device reports: it takes {more_ns:.0f} ns more"
        return ""

    def slower(self, samples: Sequence[float]) -> str:
        """Whether launches on inputs of their own take longer than those of the timing."""
        if self.own is None:
            return ""
        timed_ns, own_ns = statistics.median(samples), math.inf
        for _ in range(TIMES):
            own_ns = min(own_ns, self.own())
            self.unseen = own_ns / timed_ns
            if own_ns <= (1 + self.remembered) * timed_ns:
                return ""
        # By turns, so that both had the same luck on a busy machine.
        turns = [
            _Turn(self.own(), self.baseline_own(), self.baseline_known()) for _ in range(TIMES)
        ]
        own_ns = min(turn.own_ns for turn in turns)
        found = self._remembers(timed_ns, own_ns, turns)
        return "" if found and self._only_branches(timed_ns, own_ns, turns) else found

    def _remembers(self, timed_ns: float, own_ns: float, turns: Sequence[_Turn]) -> str:
        """Whether launches on inputs of their own take longer by more than the noise."""
        share = self.remembered
        if own_ns <= timed_ns + max(share * timed_ns, _noise(turns, timed_ns, share)):
            return ""
        more = f"{own_ns / timed_ns:.3g} times as long"
        return f"remembers its inputs: launches on new ones took {more}"

    def _only_branches(self, timed_ns: float, own_ns: float, turns: Sequence[_Turn]) -> bool:
        """Whether forgotten branches explain most of what new inputs cost; corrects the samples.

        In nanoseconds: a single launch takes longer than one of a burst, by as much either way.
        """
        if self.single is None:
            return False
        known_ns, forgotten_ns = (
            min(self.single(forgets) for _ in range(TIMES)) for forgets in (False, True)
        )
        least_ns = max(self.remembered * timed_ns, BRANCHES * (own_ns - timed_ns))
        if forgotten_ns - known_ns <= least_ns:
            return False
        self.slowed = max(1.0, _slowed(timed_ns, own_ns, turns))
        return True


def _slowed(timed_ns: float, own_ns: float, turns: Sequence[_Turn]) -> float:
    """How many times as long launches on inputs of their own take, divided by the baseline's.

    By the middle turn: one of its launches may be far quicker than usual.
    """
    others = statistics.median(turn.baseline_own_ns / turn.baseline_known_ns for turn in turns)
    return own_ns / timed_ns / max(1.0, others)


def _noise(turns: Sequence[_Turn], launch_ns: float, share: float) -> float:
    """How much a launch of ``launch_ns`` varies, from launches of the baseline, in nanoseconds.

    By chance, or because its inputs are new, and by that ``share``. No more than it takes: a
    baseline that takes long may vary by many launches of a fast kernel.
    """
    own_ns = [turn.baseline_own_ns for turn in turns]
    known_ns = min(turn.baseline_known_ns for turn in turns)
    by_chance = (statistics.median(own_ns) - min(own_ns)) * max(1.0, launch_ns / min(own_ns))
    by_novelty = ((1 + share) * min(own_ns) / known_ns - 1) * launch_ns
    return min(max(by_chance, by_novelty), max(launch_ns, LEAST_NS))
