"""Whether a kernel remembers answers: is it slower on inputs that it meets for the first time?

A kernel that keeps the whole of its inputs, or a digest of them, with the answer is right on every
question and is timed as a copy of what it kept. Owns the comparison of a first launch on new
contents with the timing, and with a launch like it on the contents that were timed.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Code
from workers.devices.port import DeviceFailure
from workers.elements import from_storage, to_storage
from workers.inputs import independent

Contents = Mapping[str, str]

SLOWER = 1.5
"""A first launch so many times as long as later ones is suspicious; so many times is enough:"""
TIMES = 6
TURNS = 3
"""So many of them are each followed by one on what was timed, launched on as often as then."""
_LEAST_NS = 5_000


def refuse_memory(
    arguments: Sequence[ResolvedArgument],
    contents: Contents,
    known_ns: float,
    once: Callable[[Contents], float],
    familiar: Callable[[], float],
    rng: np.random.Generator,
) -> None:
    """Launch on contents that the kernel has never seen, and on others while it is slower.

    A single launch may take longer than those of a timing did, and the machine may slow down: only
    a launch just like it, on contents that the kernel knows, tells.

    Args:
        arguments: of the shape.
        contents: new ones, by argument.
        known_ns: what a launch on those of the timing took right after it.
        once: nanoseconds of one launch on given contents.
        familiar: the same on those of the timing, after as many launches on them as in one.
        rng: how further contents are made of these.

    Raises:
        DeviceFailure: it was slower each time.
    """
    first = once(contents)
    if not _slower(first, known_ns):
        return
    ratios = [first / known_ns]
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        for turn in range(1, TIMES):
            first, later = once(_renewed(arguments, contents, Path(folder), rng)), known_ns
            if _slower(first, later) and turn >= TIMES - TURNS:
                later = familiar()
            if not _slower(first, later):
                return
            ratios.append(first / later)
    raise DeviceFailure(
        Code.IMPOSSIBLE_TIME,
        f"remembers its inputs: {TIMES} times a first launch on new ones took at least "
        f"{min(ratios):.2g} times as long as on those that were timed",
    )


def _slower(first: float, later: float) -> bool:
    return first >= max(SLOWER * later, later + _LEAST_NS)


def _renewed(
    arguments: Sequence[ResolvedArgument],
    contents: Contents,
    folder: Path,
    rng: np.random.Generator,
) -> dict[str, str]:
    """The same numbers in other places, where each may stand anywhere."""
    found = dict(contents)
    for argument in arguments:
        if argument.name in contents and independent(argument):
            values = from_storage(Path(contents[argument.name]).read_bytes(), argument)
            moved = np.roll(values, int(rng.integers(1, max(2, values.size))))
            path = folder / f"{argument.name}-{rng.integers(1 << 62)}.raw"
            to_storage(moved, argument).tofile(path)
            found[argument.name] = str(path)
    return found
