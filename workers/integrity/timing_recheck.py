"""Rechecks a timing with single launches: is the kernel slower there, or on new inputs?

A kernel that remembers its inputs with their outputs passes every check and is timed copying the
outputs. One that leaves its work to another launch may do nothing in most of the timed ones. So a
timing is compared with single launches on the timed contents, and these with single launches on new
contents. Each of them is also checked for its answer. One that changes what the device reports is
found out by another clock.

A processor remembers, too: which way each branch of a kernel went on inputs that it meets again. So
a kernel that is slower on new inputs is launched on known ones after the processor has forgotten.
If that explains most of it, the samples are corrected to what the kernel takes on new inputs.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.contents import FromPython
from tuner.trial import Code
from workers.devices.port import DeviceFailure
from workers.elements import from_storage, to_storage
from workers.inputs import PythonFill, fill, is_foreign, nudged
from workers.integrity.launch_checks import Contents
from workers.scratch import PrivateFolder

REMEMBERED = 0.1
"""Share of a launch's time by which one on new inputs may be slower, besides the noise: honest
kernels vary with their inputs."""
SINGLE, SINGLE_NS = 1.5, 5_000
"""Suspicious between a single launch and a timing: so many times as long, and so many nanoseconds
longer. Launches of a burst overlap, those of some kernels more than the baseline's."""
UNREPORTED, UNREPORTED_NS = 0.25, 5_000
"""Suspicious: so large a part of a launch's time, and so many nanoseconds, beyond what it is for
the baseline, pass on the host's clock alone."""
TURNS = 5
"""Timings in a row after which a suspicious kernel is rejected."""
CLOCK_TURNS = 12
"""The same of the host's clock. Its readings are those of the last few timings together: so many
contain several that are independent."""
TIMES = 5
"""Single launches whose fastest counts, for kernels whose time varies."""
BRANCHES = 0.5
"""Share of what new inputs cost that forgotten branches must explain: few are still known then."""


@dataclass(frozen=True, slots=True)
class FirstLaunch:
    """Nanoseconds of a launch on inputs that the kernel never saw, and the baseline's on them."""

    own_ns: float
    baseline_ns: float


@dataclass(frozen=True, slots=True)
class _Turn:
    """Launches one after the other: on known inputs, on new ones, and the baseline's on known."""

    known_ns: float
    first: FirstLaunch
    baseline_known_ns: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """The samples to believe, and how their kernel fares on inputs that it never saw.

    Where a processor's branches alone make it slower there, the samples are ``corrected``: as much
    longer as it is, beside the baseline.

    ``unseen`` is the time of a single launch on such inputs ÷ that on the timed ones; ``None`` if
    no inputs could be new.
    """

    samples: list[float]
    unseen: float | None = None
    corrected: bool = False


def accept_or_retime(
    samples: list[float],
    again: Callable[[], list[float]],
    *,
    known: Callable[[], float],
    new: Iterator[FirstLaunch],
    baseline_ns: Callable[[], float],
    baseline_known: Callable[[], float],
    overhead_ns: Callable[[], float],
    unreported_ns: Callable[[], float],
    forgotten: Callable[[], float] | None = None,
) -> Accepted:
    """The samples, or those of a repeated timing that no single launch contradicts.

    A single launch may take longer than the launches of a timing, and the machine may slow down. So
    launches on known contents are compared with the timing after the baseline's overhead is
    subtracted, and launches on new contents with launches on known ones, by turns if in doubt. How
    much those may differ follows from how much the baseline's do meanwhile: a processor predicts
    branches better on data that it has met before.

    Args:
        samples: nanoseconds per launch of the timing.
        again: repeats the timing.
        known: nanoseconds of one launch on the timed contents.
        new: launches, each on contents that the kernel has never seen.
        baseline_ns: nanoseconds per launch of the baseline's last timings.
        baseline_known: nanoseconds of one launch of the baseline on the timed contents.
        overhead_ns: by how much a single launch of the baseline exceeds its timing.
        unreported_ns: what passed per launch of the last timings on the host's clock but not on the
            device's, less the baseline's.
        forgotten: nanoseconds of one launch on the timed contents after the device has forgotten
            which way branches went; ``None`` where it predicts none.

    Raises:
        DeviceFailure: single launches were slower each time.
    """
    doubts = _Doubts(known, new, baseline_ns, baseline_known, overhead_ns, unreported_ns, forgotten)
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

    known: Callable[[], float]
    new: Iterator[FirstLaunch]
    baseline_ns: Callable[[], float]
    baseline_known: Callable[[], float]
    overhead_ns: Callable[[], float]
    unreported_ns: Callable[[], float]
    forgotten: Callable[[], float] | None
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
        """Whether single launches are slower than the timing, or slower on new inputs."""
        timed_ns = statistics.median(samples)
        bound_ns = _bound_ns(timed_ns)
        known_ns = math.inf
        for _ in range(TIMES):
            if (known_ns := min(known_ns, self.known())) < bound_ns:
                break
        if found := self._contradiction(timed_ns, known_ns):
            return "" if self._only_branches(timed_ns, ()) else found
        for number, first in enumerate(itertools.islice(self.new, TIMES)):
            if not number:
                self.unseen = first.own_ns / known_ns
            if first.own_ns <= (1 + REMEMBERED) * max(timed_ns, known_ns):
                return ""
        # By turns, so that both had the same luck on a busy machine.
        if not (turns := self._turns()):
            return ""
        # One that remembers now and then may have done without each time: it is no faster then.
        known_ns = min(turn.known_ns for turn in turns)
        least_ns = max(timed_ns, known_ns)
        found = self._contradiction(timed_ns, known_ns) or _remembers(least_ns, turns)
        return "" if found and self._only_branches(timed_ns, turns) else found

    def _turns(self) -> list[_Turn]:
        return [
            _Turn(self.known(), first, self.baseline_known())
            for first in itertools.islice(self.new, TIMES)
        ]

    def _only_branches(self, timed_ns: float, turns: Sequence[_Turn]) -> bool:
        """Whether forgotten branches explain why new inputs, or single launches, take longer.

        What the samples are then multiplied by follows from the ``turns``, taken here if there are
        none: launches on new inputs as an application has them.
        """
        if self.forgotten is None or not (turns := turns or self._turns()):
            return False
        known_ns = statistics.median(turn.known_ns for turn in turns)
        new_ns = statistics.median(turn.first.own_ns for turn in turns)
        forgotten_ns = statistics.median(self.forgotten() for _ in range(TIMES))
        if forgotten_ns - known_ns <= max(REMEMBERED * known_ns, BRANCHES * (new_ns - known_ns)):
            return False
        self.slowed = max(1.0, _slowed(timed_ns, turns, self.baseline_ns()))
        return True

    def _contradiction(self, timed_ns: float, known_ns: float) -> str:
        """Whether the quickest single launch on the timed contents contradicts the timing."""
        bound_ns = _bound_ns(timed_ns)
        if known_ns < bound_ns or known_ns - self.overhead_ns() < bound_ns:
            return ""
        return f"is not as fast as it was timed: {known_ns / timed_ns:.2g} times as long"


def _bound_ns(timed_ns: float) -> float:
    """How long a single launch may take that does not contradict a timing."""
    return max(SINGLE * timed_ns, timed_ns + SINGLE_NS)


def _remembers(least_ns: float, turns: Sequence[_Turn]) -> str:
    """Whether launches on new inputs take longer than ``least_ns`` by more than the noise."""
    new_ns = min(turn.first.own_ns for turn in turns)
    if new_ns <= least_ns + max(REMEMBERED * least_ns, _noise(turns, least_ns)):
        return ""
    more = f"{new_ns / least_ns:.2g} times as long"
    return f"remembers its inputs: a first launch on new ones took {more}"


def _slowed(timed_ns: float, turns: Sequence[_Turn], baseline_ns: float) -> float:
    """How many times as long as timed launches take on new inputs, divided by the baseline's.

    Single launches take longer than those of a burst, or shorter where more threads are awake: by
    as much as the baseline's, which takes ``baseline_ns`` in a burst.
    """
    known_ns = min(turn.baseline_known_ns for turn in turns)
    new_ns = min(turn.first.own_ns for turn in turns) - (known_ns - baseline_ns)
    return new_ns / timed_ns / max(1.0, min(turn.first.baseline_ns for turn in turns) / known_ns)


def _noise(turns: Sequence[_Turn], launch_ns: float) -> float:
    """How much a launch of ``launch_ns`` varies, from launches of the baseline, in nanoseconds.

    By chance, or because its inputs are new. No more than it takes: a baseline that takes long may
    vary by many launches of a fast kernel.
    """
    new_ns = [turn.first.baseline_ns for turn in turns]
    known_ns = min(turn.baseline_known_ns for turn in turns)
    by_chance = (statistics.median(new_ns) - min(new_ns)) * max(1.0, launch_ns / min(new_ns))
    by_novelty = ((1 + REMEMBERED) * min(new_ns) / known_ns - 1) * launch_ns
    return min(max(by_chance, by_novelty), max(launch_ns, SINGLE_NS))


@contextmanager
def new_contents(
    arguments: Sequence[ResolvedArgument],
    contents: Contents,
    rng: np.random.Generator,
    python: PythonFill,
) -> Iterator[Iterator[Contents]]:
    """Contents with new numbers for these arguments, without end; nothing if there are none."""
    folder = PrivateFolder("new")
    try:

        def renewed() -> Iterator[Contents]:
            for number in itertools.count() if arguments else ():
                found = dict(contents)
                for argument in arguments:
                    path = folder.path / f"{argument.name}-{number}.raw"
                    values = _renewed(argument, contents[argument.name], rng, python)
                    to_storage(values, argument).tofile(path)
                    found[argument.name] = str(path)
                yield found

        yield renewed()
    finally:
        folder.remove()


def _renewed(
    argument: ResolvedArgument, known: str, rng: np.random.Generator, python: PythonFill
) -> NDArray[Any]:
    """New numbers: drawn, of a function by another seed, or close to the ``known`` ones."""
    if not is_foreign(argument):
        return fill(argument, rng, "default", python)
    before = from_storage(Path(known).read_bytes(), argument)
    if isinstance(argument.fill, FromPython):
        other = fill(argument, rng, "default", python)
        if not np.array_equal(other, before, equal_nan=True):
            return other
    return nudged(before, rng)
