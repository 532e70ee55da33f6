"""Whether a timing can be believed: is a kernel slower on inputs that it never met, or afterwards?

A kernel that keeps the whole of its inputs, or a digest of them, with the answer is right on every
question and is timed as a copy of what it kept; one that leaves its work to another launch may do
nothing in most of those that are timed. Owns the comparison of the timing with single launches on
the contents that were timed, and of those with launches like them on new contents. The answer of
each is checked: else a kernel could do nothing there as well.
"""

import itertools
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.spec.experiment import FromFile, FromPython
from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Code
from workers.bench.judge import Contents
from workers.bench.prep import Prep
from workers.bench.stand import Entrant, Stand
from workers.devices.port import DeviceFailure
from workers.elements import to_storage
from workers.inputs import fill

ALIKE = 1.25, 2_000
"""A launch so many times as long as one like it, and so many nanoseconds longer, is suspicious;"""
SINGLE = 1.5, 5_000
"""so is a single one as against those of a timing. Who is so on many turns is guilty:"""
TURNS = 3
TIMES = 5
"""Of so many launches one is as fast as a kernel is, if it is now as fast, now slower."""
_FOREIGN = FromFile | FromPython


def doubt(
    prep: Prep,
    stand: Stand,
    entrant: Entrant,
    baseline: Entrant,
    shape: int,
    samples: list[float],
    again: Callable[[], list[float]],
    rng: np.random.Generator,
    *,
    kin: bool,
) -> list[float]:
    """The timing of an entrant on a shape that is to be believed: :func:`believed`.

    ``kin``: whether it is asked as if others that the child ran before had told it of the last
    question, which all are asked; then by numbers that are drawn for it alone.
    """
    first, *_, last = prep.questions[shape]
    known_ns = prep.baseline_ns[shape]
    drawn = _drawn(prep.arguments[shape], first.contents)
    common = () if kin and drawn else (last,)
    with _renewals(drawn, first.contents, rng) as renewals:
        return believed(
            samples,
            again,
            known=lambda: stand.once(entrant, first, known_ns),
            new=itertools.chain(
                (stand.once(entrant, one, known_ns) for one in common),
                (stand.beside(entrant, baseline, last, one, known_ns) for one in renewals),
            ),
            lag=lambda: stand.lag(baseline, first, known_ns),
            drifts=stand.drifts(shape, prep.measure),
        )


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
        new: nanoseconds of launches, each on contents that the kernel never saw.
        lag: how much longer one launch of the baseline takes than it did while it was timed.
        drifts: whether most launches of a timing found other contents than ``known`` does.

    Raises:
        DeviceFailure: it was slower each time.
    """

    def verdict(samples: Sequence[float]) -> str:
        timed_ns = statistics.median(samples)
        known_ns = _fastest(known, SINGLE, timed_ns)
        if (
            not drifts
            and _slower(known_ns, SINGLE, timed_ns)
            and _slower(known_ns - lag(), SINGLE, timed_ns)
        ):
            return f"is not as fast as it was timed: {known_ns / timed_ns:.2g} times as long"
        least_ns = max(timed_ns, known_ns)
        new_ns = _fastest(lambda: next(new), ALIKE, least_ns)
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
    raise DeviceFailure(Code.IMPOSSIBLE_TIME, f"{found}, {TURNS} times in a row")


def _fastest(launch: Callable[[], float], than: tuple[float, float], other_ns: float) -> float:
    """Of a few launches, until one is not slower than another."""
    least_ns = math.inf
    for _ in range(TIMES):
        least_ns = min(least_ns, launch())
        if not _slower(least_ns, than, other_ns):
            break
    return least_ns


def _slower(first_ns: float, than: tuple[float, float], other_ns: float) -> bool:
    times, by_ns = than
    return first_ns >= max(times * other_ns, other_ns + by_ns)


@contextmanager
def _renewals(
    drawn: Sequence[ResolvedArgument], contents: Contents, rng: np.random.Generator
) -> Iterator[Iterator[Contents]]:
    """New numbers again and again, wherever they are drawn."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:

        def renewed() -> Iterator[Contents]:
            for number in itertools.count():
                found = dict(contents)
                for argument in drawn:
                    path = Path(folder) / f"{argument.name}-{number}.raw"
                    values = fill(argument, rng, "default", _no_python)
                    to_storage(values, argument).tofile(path)
                    found[argument.name] = str(path)
                yield found

        yield renewed()


def _drawn(arguments: Sequence[ResolvedArgument], contents: Contents) -> list[ResolvedArgument]:
    """Those whose contents can be drawn anew."""
    return [
        argument
        for argument in arguments
        if argument.name in contents and not isinstance(argument.fill, _FOREIGN)
    ]


def _no_python(function: FromPython, name: str, seed: int) -> NDArray[Any]:
    raise NotImplementedError
