"""Whether a timing can be believed: is a kernel slower on inputs that it never met, or afterwards?

A kernel that keeps the whole of its inputs, or a digest of them, with the answer is right on every
question and is timed as a copy of what it kept; one that finds its own answer in place may do
nothing while it is timed. Owns the comparison of the timing with single launches on the contents
that were timed, and of those with launches like them on new contents.
"""

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.spec.experiment import FromFile, FromPython
from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Code
from workers.bench.judge import Question
from workers.bench.prep import Prep
from workers.bench.stand import Entrant, Stand
from workers.devices.port import DeviceFailure
from workers.elements import to_storage
from workers.inputs import fill

Contents = Mapping[str, str]

SLOWER = 1.5
"""A launch so many times as long as another is suspicious; one that is on so many turns is guilty:
"""
TURNS = 3
TIMES = 5
"""The fastest of so many launches in each turn is compared."""
_UPPER = 0.75
"""A kernel may be now as fast, now slower; what so many launches of a timing do not exceed."""
_LEAST_NS = 5_000
_FOREIGN = FromFile | FromPython


def doubt(
    prep: Prep,
    stand: Stand,
    entrant: Entrant,
    baseline: Entrant,
    shape: int,
    samples: Sequence[float],
    again: Callable[[], Sequence[float]],
    rng: np.random.Generator,
) -> None:
    """Refuse an entrant whose timing on a shape is not to be believed: :func:`refuse_memory`."""
    first, *_, last = prep.questions[shape]
    known_ns = prep.baseline_ns[shape]
    refuse_memory(
        prep.arguments[shape],
        first,
        last.contents,
        samples,
        lambda contents: stand.once(entrant, shape, contents, known_ns),
        again,
        lambda: stand.lag(baseline, first, known_ns),
        rng,
    )


def refuse_memory(
    arguments: Sequence[ResolvedArgument],
    question: Question,
    new: Contents,
    samples: Sequence[float],
    once: Callable[[Contents], float],
    again: Callable[[], Sequence[float]],
    lag: Callable[[], float],
    rng: np.random.Generator,
) -> None:
    """Launch on what was timed and on what the kernel has never seen, and again while it is slower.

    A single launch may take longer than those of a timing did, and the machine may slow down: so a
    launch on new contents is compared with one just like it on known ones, and one on known ones
    with the slower launches of the timing, less what the baseline itself lags behind. Where it was
    slower at first, the last timing that was taken again is the one to believe.

    Args:
        arguments: of the shape.
        question: what was timed.
        new: contents that the kernel never saw.
        samples: nanoseconds of launches while it was timed.
        once: nanoseconds of one launch on given contents.
        again: times the kernel again.
        lag: how much longer one launch of the baseline takes than it did while it was timed.
        rng: how contents are made of others.

    Raises:
        DeviceFailure: it was slower each time.
    """
    drifts = any(argument.kind == "inout" for argument in arguments)
    with _renewals(arguments, question.contents, rng) as renewals:

        def verdict(samples: Sequence[float], times: int, unseen: Contents | None = None) -> str:
            known_ns = min(once(question.contents) for _ in range(times))
            upper_ns = float(np.quantile(samples, _UPPER))
            if not drifts and _slower(known_ns, upper_ns) and _slower(known_ns - lag(), upper_ns):
                return f"is not as fast as it was timed: {known_ns / upper_ns:.2g} times as long"
            new_ns = min(once(unseen or next(renewals)) for _ in range(times))
            least_ns = max(statistics.median(samples), known_ns)
            if _slower(new_ns, least_ns):
                return (
                    "remembers its inputs: a first launch on new ones took "
                    f"{new_ns / least_ns:.2g} times as long"
                )
            return ""

        if not verdict(samples, 1, new):
            return
        for _ in range(TURNS):
            if not (found := verdict(again(), TIMES)):
                return
    raise DeviceFailure(Code.IMPOSSIBLE_TIME, f"{found}, {TURNS} times in a row")


def _slower(first: float, later: float) -> bool:
    return first >= max(SLOWER * later, later + _LEAST_NS)


@contextmanager
def _renewals(
    arguments: Sequence[ResolvedArgument], contents: Contents, rng: np.random.Generator
) -> Iterator[Iterator[Contents]]:
    """New numbers again and again, wherever they are drawn."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:

        def renewed() -> Iterator[Contents]:
            for number in itertools.count():
                found = dict(contents)
                for argument in arguments:
                    if argument.name in contents and not isinstance(argument.fill, _FOREIGN):
                        path = Path(folder) / f"{argument.name}-{number}.raw"
                        values = fill(argument, rng, "default", _no_python)
                        to_storage(values, argument).tofile(path)
                        found[argument.name] = str(path)
                yield found

        yield renewed()


def _no_python(function: FromPython, name: str, seed: int) -> NDArray[Any]:
    raise NotImplementedError
