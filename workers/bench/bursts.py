"""The bursts of a timing: their random order, and which of them are inspected.

Owns which bursts are checked, and where one ends early, so that a kernel cannot tell when it is
checked. Knows no process and no right answer.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from workers.bench.stopping import LEAST_BURSTS
from workers.devices.port import LateWrite, Parts, Rotation

CHECKED = 8
"""Bursts of a timing that are checked, if there are so many: one in each of as many parts.

The median moves only if half of the launches do less than they should. A contiguous half covers all
but two of its parts; launches picked otherwise must escape eight times in a row.
"""


@dataclass(frozen=True, slots=True)
class Burst:
    """Launches in one go, and the set to ``inspect`` afterwards, one that was launched on.

    Of outputs in ``parts`` only those bytes are inspected.
    ``exact``: on buffers that are aligned to exactly what is promised, rather than as an allocator
    aligns. ``idle`` sets are restored too, and must not change.
    In a ``mixed`` burst the set to inspect holds other inputs than the rest; with a ``seed`` each
    set holds inputs of its own.
    ``timed`` bursts give samples; ``raced`` ones, warm-up included, tell whether a candidate is
    surely slower than a cut-off. With ``keep_outputs`` nothing is poisoned before. With ``late``
    the last launch finds its memory written late. With ``forgets`` a processor has forgotten before
    which way the kernel's branches went.
    """

    order: tuple[int, ...]
    inspect: int | None = None
    parts: Parts = field(default_factory=dict)
    idle: tuple[int, ...] = ()
    timed: bool = False
    raced: bool = False
    keep_outputs: bool = False
    exact: bool = False
    mixed: bool = False
    seed: int | None = None
    late: LateWrite | None = None
    forgets: bool = False


def random_order(rotation: Rotation, rng: np.random.Generator) -> tuple[int, ...]:
    """A burst's sets: each once, in random order."""
    return tuple(int(index) for index in rng.permutation(rotation.sets))


def plan_bursts(
    rotation: Rotation,
    order: tuple[int, ...],
    rng: np.random.Generator,
    *,
    late: Sequence[LateWrite] = (),
    mixes: bool = False,
) -> list[Burst]:
    """The bursts of warm-up and timing, and those that check them.

    A checked burst has one of its sets inspected. One more burst ends early and is not timed, and
    so does one for each ``late`` write. One that ``mixes`` inputs is not timed either.
    """
    count = rotation.warmup + rotation.bursts
    checked = _checkpoints(count, rng)
    found = [
        _planned(order, rng, timed=number >= rotation.warmup, checked=number in checked)
        for number in range(count)
    ]
    if len(order) > 1:
        sooner = min(count, LEAST_BURSTS)
        others = [_short_burst(order, rng), *([_mixed_burst(order, rng)] if mixes else [])]
        for burst in others:
            found.insert(sooner + pick(len(found) - sooner + 1, rng), burst)
    for write in late:
        begun = order[: small_number(len(order), rng)]
        burst = Burst(begun, inspect=begun[-1], late=write)
        found.insert(pick(len(found) + 1, rng), burst)
    return found


def another_burst(order: tuple[int, ...], rng: np.random.Generator) -> Burst:
    """One more burst of a timing that continues; about every eighth is checked."""
    return _planned(order, rng, timed=True, checked=pick(CHECKED, rng) == 0)


def ended_early(order: tuple[int, ...], length: int) -> Burst:
    """A burst that ends early, after a set that is inspected and before those that are left idle.

    All are restored, so that a launch cannot tell that it is the last. One that leaves its work to
    the next is found at the former, one that does the work of later ones at the latter.
    """
    return Burst(order[:length], inspect=order[length - 1], idle=order[length:])


def pick(count: int, rng: np.random.Generator) -> int:
    """A uniform random index below ``count``."""
    return int(rng.integers(count))


def small_number(most: int, rng: np.random.Generator) -> int:
    """A random number from 1 to ``most``; each doubling is equally likely."""
    return min(most, int((most + 1) ** rng.random()))


def _planned(
    order: tuple[int, ...], rng: np.random.Generator, *, timed: bool, checked: bool
) -> Burst:
    inspect = order[pick(len(order), rng)] if checked else None
    return Burst(order, inspect=inspect, timed=timed, raced=True)


def _checkpoints(count: int, rng: np.random.Generator) -> set[int]:
    """Numbers of the checked bursts: one before a timing may be given up, the others later."""
    sooner = min(count, LEAST_BURSTS)
    looks = min(CHECKED - 1, count - sooner)
    edges = [sooner + (count - sooner) * look // max(looks, 1) for look in range(looks + 1)]
    later = [first + pick(behind - first, rng) for first, behind in itertools.pairwise(edges)]
    return {pick(sooner, rng), *later}


def _short_burst(order: tuple[int, ...], rng: np.random.Generator) -> Burst:
    return replace(ended_early(order, small_number(len(order) - 1, rng)), raced=True)


def _mixed_burst(order: tuple[int, ...], rng: np.random.Generator) -> Burst:
    """A burst in which a launch behind the first finds other inputs than those before it.

    One that takes what an earlier launch of the burst computed, wherever that is kept, is wrong.
    """
    return Burst(order, inspect=order[1 + pick(len(order) - 1, rng)], mixed=True)
