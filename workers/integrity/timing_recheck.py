"""Whether a timing can be believed: is a kernel slower on inputs that it never met, or afterwards?

A kernel that keeps the whole of its inputs, or a digest of them, with the answer is right on every
question and is timed as a copy of what it kept; one that leaves its work to another launch may do
nothing in most of those that are timed. Owns the comparison of the timing with single launches on
the contents that were timed, and of those with launches like them on new contents. The answer of
each is checked: else a kernel could do nothing there as well.
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
from tuner.experiment.model import FromPython
from tuner.trial import Code
from workers.devices.port import DeviceFailure
from workers.elements import from_storage, to_storage
from workers.inputs import fill, is_foreign, nudged
from workers.integrity.launch_checks import Contents

ALIKE = 1.25, 2_000
"""A launch so many times as long as one like it, and so many nanoseconds longer, is suspicious;"""
SINGLE = 1.5, 5_000
"""so is a single one as against those of a timing. Who is so on many turns is guilty:"""
TURNS = 3
TIMES = 5
"""Of so many launches one is as fast as a kernel is, if it is now as fast, now slower."""


def believed(
    samples: list[float],
    again: Callable[[], list[float]],
    *,
    known: Callable[[], float],
    new: Iterator[float],
    lag: Callable[[], float],
    drifts: bool,
) -> list[float]:
    """The timing, or the last that was taken again while single launches were slower.

    Those are on what was timed, and on what the kernel has never seen. A single launch may take
    longer than those of a timing did, and the machine may slow down: so launches on known contents
    are compared with the timing, less what the baseline itself lags behind, and one on new contents
    with one just like it on known ones.

    Args:
        samples: nanoseconds of launches while it was timed.
        again: times the kernel again.
        known: nanoseconds of one launch on the contents that were timed.
        new: nanoseconds of launches, each on contents that the kernel never saw, while there are.
        lag: how much longer one launch of the baseline takes than it did while it was timed.
        drifts: whether most launches of a timing found other contents than ``known`` does.

    Raises:
        DeviceFailure: it was slower each time.
    """

    def verdict(samples: Sequence[float]) -> str:
        timed_ns = statistics.median(samples)
        known_ns = _fastest(iter(known, None), SINGLE, timed_ns)
        if (
            not drifts
            and _slower(known_ns, SINGLE, timed_ns)
            and _slower(known_ns - lag(), SINGLE, timed_ns)
        ):
            return f"is not as fast as it was timed: {known_ns / timed_ns:.2g} times as long"
        least_ns = max(timed_ns, known_ns)
        new_ns = _fastest(new, ALIKE, least_ns)
        if _slower(new_ns, ALIKE, least_ns):
            return (
                "remembers its inputs: a first launch on new ones took "
                f"{new_ns / least_ns:.2g} times as long"
            )
        return ""

    if not verdict(samples):
        return samples
    for _ in range(TURNS):
        samples = again()
        if not (found := verdict(samples)):
            return samples
    raise DeviceFailure(Code.SLOWER_AGAIN, f"{found}, {TURNS} times in a row")


def _fastest(launches: Iterator[float], than: tuple[float, float], other_ns: float) -> float:
    """Of a few launches, until one is not slower than another; 0 if there is none."""
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
    arguments: Sequence[ResolvedArgument], contents: Contents, rng: np.random.Generator
) -> Iterator[Iterator[Contents]]:
    """Contents with new numbers for these arguments, without end; nothing if there are none."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:

        def renewed() -> Iterator[Contents]:
            for number in itertools.count() if arguments else ():
                found = dict(contents)
                for argument in arguments:
                    path = Path(folder) / f"{argument.name}-{number}.raw"
                    values = _renewed(argument, contents[argument.name], rng)
                    to_storage(values, argument).tofile(path)
                    found[argument.name] = str(path)
                yield found

        yield renewed()


def _renewed(argument: ResolvedArgument, known: str, rng: np.random.Generator) -> NDArray[Any]:
    """Numbers that a kernel never saw: drawn, or close to the ``known`` where these are foreign."""
    if is_foreign(argument):
        return nudged(from_storage(Path(known).read_bytes(), argument), rng)
    return fill(argument, rng, "default", _no_python)


def _no_python(function: FromPython, name: str, seed: int) -> NDArray[Any]:
    raise NotImplementedError
