"""Rechecks a timing with single launches: is the kernel slower there, or on new inputs?

A kernel that remembers its inputs with their outputs passes every check and is timed copying the
outputs. One that leaves its work to another launch may do nothing in most of the timed ones. So a
timing is compared with single launches on the timed contents, and these with single launches on new
contents. Each of them is also checked for its answer. One that changes what the device reports is
found out by another clock.
"""

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from workers.scratch import runtime_directory

ALIKE = 1.25, 2_000
"""Suspicious between single launches: so many times as long, and so many nanoseconds longer."""
SINGLE = 1.5, 5_000
"""Suspicious between a single launch and a timing."""
UNREPORTED = 0.25
"""Suspicious: so large a part of a launch's time, beyond what it is for the baseline, passes on the
host's clock alone."""
UNREPORTED_NS = 5_000
"""Not suspicious: less than this, which the host's own noise may be."""
TURNS = 5
"""Timings in a row after which a suspicious kernel is rejected."""
CLOCK_TURNS = 12
"""The same of the host's clock, which on a busy machine has bad luck more often than a device's."""
TIMES = 5
"""Single launches whose fastest counts, for kernels whose time varies."""


def accept_or_retime(
    samples: list[float],
    again: Callable[[], list[float]],
    *,
    known: Callable[[], float],
    new: Iterator[float],
    overhead_ns: Callable[[], float],
    unreported_ns: Callable[[], float],
) -> list[float]:
    """The samples, or those of a repeated timing that no single launch contradicts.

    A single launch may take longer than the launches of a timing, and the machine may slow down. So
    launches on known contents are compared with the timing after the baseline's overhead is
    subtracted, and launches on new contents with launches on known ones, by turns if in doubt.

    Args:
        samples: nanoseconds per launch of the timing.
        again: repeats the timing.
        known: nanoseconds of one launch on the timed contents.
        new: nanoseconds of launches, each on contents that the kernel has never seen.
        overhead_ns: by how much a single launch of the baseline exceeds its timing.
        unreported_ns: what passed per launch of the last timings on the host's clock but not on the
            device's, less the baseline's.

    Raises:
        DeviceFailure: single launches were slower each time.
    """

    def unreported(samples: Sequence[float]) -> str:
        more_ns = unreported_ns()
        if more_ns > max(UNREPORTED_NS, UNREPORTED * statistics.median(samples)):
            return f"is not as fast as the device reports: it takes {more_ns:.0f} ns more"
        return ""

    def slower(samples: Sequence[float]) -> str:
        timed_ns = statistics.median(samples)
        known_ns = _fastest(iter(known, None), SINGLE, timed_ns)
        if _slower(known_ns, SINGLE, timed_ns) and _slower(
            known_ns - overhead_ns(), SINGLE, timed_ns
        ):
            return f"is not as fast as it was timed: {known_ns / timed_ns:.2g} times as long"
        least_ns = max(timed_ns, known_ns)
        new_ns = _fastest(new, ALIKE, least_ns)
        if not _slower(new_ns, ALIKE, least_ns):
            return ""
        # By turns, so that both had the same luck on a busy machine.
        if pairs := [(known(), new_ns) for new_ns in itertools.islice(new, TIMES)]:
            known_ns, new_ns = (min(times) for times in zip(*pairs, strict=True))
            least_ns = max(timed_ns, known_ns)
        if _slower(new_ns, ALIKE, least_ns):
            return (
                "remembers its inputs: a first launch on new ones took "
                f"{new_ns / least_ns:.2g} times as long"
            )
        return ""

    if not (unreported(samples) or slower(samples)):
        return samples
    for turn in itertools.count(1):
        samples = again()
        clock = unreported(samples)
        if not (found := clock or slower(samples)):
            return samples
        if turn >= (CLOCK_TURNS if clock else TURNS):
            break
    raise DeviceFailure(Code.SLOWER_AGAIN, f"{found}, {turn} times in a row")


def _fastest(launches: Iterator[float], than: tuple[float, float], other_ns: float) -> float:
    """The fastest of a few launches, up to the first that is not slower; 0 without any."""
    found: list[float] = []
    for launch_ns in itertools.islice(launches, TIMES):
        found.append(launch_ns)
        if not _slower(launch_ns, than, other_ns):
            break
    return min(found, default=0.0)


def _slower(first_ns: float, than: tuple[float, float], other_ns: float) -> bool:
    times, by_ns = than
    return first_ns >= max(times * other_ns, other_ns + by_ns)


@contextmanager
def new_contents(
    arguments: Sequence[ResolvedArgument],
    contents: Contents,
    rng: np.random.Generator,
    python: PythonFill,
) -> Iterator[Iterator[Contents]]:
    """Contents with new numbers for these arguments, without end; nothing if there are none."""
    with tempfile.TemporaryDirectory(prefix="new-", dir=runtime_directory()) as folder:

        def renewed() -> Iterator[Contents]:
            for number in itertools.count() if arguments else ():
                found = dict(contents)
                for argument in arguments:
                    path = Path(folder) / f"{argument.name}-{number}.raw"
                    values = _renewed(argument, contents[argument.name], rng, python)
                    to_storage(values, argument).tofile(path)
                    found[argument.name] = str(path)
                yield found

        yield renewed()


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
