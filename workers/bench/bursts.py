"""What a timing consists of: bursts in a random order, some of them looked at afterwards.

Owns which bursts are checked, and where one ends early, so that no kernel can tell where it is
looked at. Knows nothing of children and of what is right.
"""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from workers.bench.stopping import LEAST_BURSTS
from workers.devices.port import Rotation

LOOKS = 8
"""Bursts of a timing that are checked, where there are so many: one in each of as many stretches.

A median moves only if half of the launches do less than they should; in an unbroken half every
stretch but two is whole, and launches picked otherwise must escape eight times in a row.
"""


@dataclass(frozen=True, slots=True)
class Volley:
    """Launches of one go, and the set to ``look`` at afterwards, launched on or not.

    They are ``timed``, or ``raced`` alone as those that warm up are, or neither. Where outputs
    ``stand``, nothing is poisoned.
    """

    order: tuple[int, ...]
    look: int | None = None
    timed: bool = False
    raced: bool = False
    stands: bool = False


def random_order(rotation: Rotation, rng: np.random.Generator) -> tuple[int, ...]:
    """A burst's sets: each once, in random order, and again in the same as often as it takes."""
    cycle = [int(index) for index in rng.permutation(rotation.sets)]
    repeated = cycle * -(-rotation.launches // rotation.sets)
    return tuple(repeated[: rotation.launches])


def bursts(
    rotation: Rotation, order: tuple[int, ...], rng: np.random.Generator, *, in_place: bool
) -> list[tuple[Volley, ...]]:
    """Warm-up and timing; in each, what is fired.

    Of one that is checked a set is looked at that was launched on; what works ``in_place`` and was
    launched on a set more than once is looked at apart, after a launch of its own. Later, one more
    ends early, and is not timed.
    """
    count = rotation.warmup + rotation.bursts
    checked = _checkpoints(count, rng)
    drifts = drifting(rotation, in_place=in_place)
    found = [
        _burst(order, rng, timed=burst >= rotation.warmup, checked=burst in checked, drifts=drifts)
        for burst in range(count)
    ]
    early = _early(order, rotation.sets, rng, once_each=drifts)
    if early is not None:
        sooner = min(count, LEAST_BURSTS)
        found.insert(sooner + pick(count - sooner + 1, rng), (early,))
    return found


def further(
    rotation: Rotation, order: tuple[int, ...], rng: np.random.Generator, *, in_place: bool
) -> tuple[Volley, ...]:
    """One more burst of a timing that goes on, of which every eighth or so is checked."""
    drifts = drifting(rotation, in_place=in_place)
    return _burst(order, rng, timed=True, checked=pick(LOOKS, rng) == 0, drifts=drifts)


def drifting(rotation: Rotation, *, in_place: bool) -> bool:
    """Whether a launch of a burst may find what another one left."""
    return in_place and rotation.launches > rotation.sets


def pick(count: int, rng: np.random.Generator) -> int:
    """One of so many, each alike."""
    return int(rng.integers(count))


def few(most: int, rng: np.random.Generator) -> int:
    """From 1 to ``most``, small numbers more often: each doubling alike."""
    return min(most, int((most + 1) ** rng.random()))


def _burst(
    order: tuple[int, ...], rng: np.random.Generator, *, timed: bool, checked: bool, drifts: bool
) -> tuple[Volley, ...]:
    volley = Volley(order, timed=timed, raced=True)
    if not checked:
        return (volley,)
    if drifts:
        return volley, Volley(order[:1], look=order[0])
    return (replace(volley, look=order[pick(len(order), rng)]),)


def _checkpoints(count: int, rng: np.random.Generator) -> set[int]:
    """The bursts that are checked: one before any timing may be given up, the others later."""
    sooner = min(count, LEAST_BURSTS)
    looks = min(LOOKS - 1, count - sooner)
    edges = [sooner + (count - sooner) * look // max(looks, 1) for look in range(looks + 1)]
    later = [first + pick(behind - first, rng) for first, behind in itertools.pairwise(edges)]
    return {pick(sooner, rng), *later}


def _early(
    order: tuple[int, ...], sets: int, rng: np.random.Generator, *, once_each: bool
) -> Volley | None:
    """One that ends early, where there is anything to end.

    Looked at is a set that would have come soon, which catches a launch that does the work of later
    ones; or, of a burst that goes over its sets more than once, one that was launched on just now,
    which catches a launch that leaves its work to the last on the same set.
    """
    cycle = order[:sets]
    again = len(order) > sets and not once_each
    if sets > 1 and not (again and pick(2, rng)):
        length = few(sets - 1, rng)
        return Volley(cycle[:length], look=cycle[length - 1 + few(sets - length, rng)], raced=True)
    if not again:
        return None
    length = 1 + pick(len(order) - 1, rng)
    return Volley(order[:length], look=order[length - 1 - pick(min(sets, length), rng)], raced=True)
