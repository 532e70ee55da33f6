"""Whether a kernel remembers answers: is it slower on inputs that it meets for the first time?

A kernel that keeps the whole of its inputs, or a digest of them, with the answer is right on every
question and is timed as a copy of what it kept. Owns the comparison of a first launch on new
contents with later ones; which contents are new is told by the caller. The same is done once more
on contents that are known by then: where that shows a like difference, the machine is its cause.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Code
from workers.bench.stand import Entrant, Stand
from workers.devices.port import DeviceFailure
from workers.elements import from_storage, to_storage
from workers.inputs import independent

SLOWER = 1.5
"""A first launch so many times as long as later ones is suspicious; so many times is enough:"""
TIMES = 6
_LEAST_NS = 5_000


def refuse_memory(
    stand: Stand,
    entrant: Entrant,
    arguments: Sequence[ResolvedArgument],
    shape: int,
    contents: Mapping[str, str],
    baseline_ns: float,
    rng: np.random.Generator,
) -> None:
    """Launch twice on contents that the entrant has never seen, and on others while it is slower.

    Args:
        stand: where the shape is staged.
        entrant: whom to look at.
        arguments: of the shape.
        shape: which one.
        contents: new ones, by argument; the shape's case holds them afterwards.
        baseline_ns: what deadlines are reckoned from.
        rng: how further contents are made of these.

    Raises:
        DeviceFailure: it was slower each time.
    """
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        ratios: list[float] = []
        given = contents
        while len(ratios) < TIMES:
            first, later = stand.twice(entrant, shape, given, baseline_ns)
            if _slower(first, later):
                later = max(later, *stand.twice(entrant, shape, given, baseline_ns))
            if not _slower(first, later):
                break
            ratios.append(first / later)
            given = _renewed(arguments, contents, Path(folder), rng)
        if given is not contents:
            stand.twice(entrant, shape, contents, baseline_ns)
    if len(ratios) == TIMES:
        raise DeviceFailure(
            Code.IMPOSSIBLE_TIME,
            f"remembers its inputs: {TIMES} times a first launch on new ones took at least "
            f"{min(ratios):.2g} times as long as the next",
        )


def _slower(first: float, later: float) -> bool:
    return first >= max(SLOWER * later, later + _LEAST_NS)


def _renewed(
    arguments: Sequence[ResolvedArgument],
    contents: Mapping[str, str],
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
