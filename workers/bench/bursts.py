"""What a timing consists of: bursts in a random order, some of them looked at afterwards.

Owns which bursts are checked, and where one ends early, so that no kernel can tell where it is
looked at. Knows nothing of children and of what is right.
"""

from dataclasses import dataclass, replace

import numpy as np

from workers.bench.interval import LEAST_BURSTS
from workers.devices.port import Rotation


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
    launched on a set more than once is looked at apart, after a launch of its own. Another ends
    early, and a set is looked at that would have come soon: that catches a launch that does the
    work of later ones, which are timed as if they did it.
    """
    count = rotation.warmup + rotation.bursts + (rotation.sets > 1)
    checked = _checkpoints(count, rng)
    cut = _bystander_at(count, checked, rng) if rotation.sets > 1 else None
    drifts = in_place and len(order) > rotation.sets
    found: list[tuple[Volley, ...]] = []
    for burst in range(count):
        volley = Volley(order, timed=burst >= rotation.warmup, raced=True)
        if burst == cut:
            cycle = order[: rotation.sets]
            length = few(len(cycle) - 1, rng)
            soon = cycle[length - 1 + few(len(cycle) - length, rng)]
            found.append((replace(volley, order=cycle[:length], look=soon),))
        elif burst not in checked:
            found.append((volley,))
        elif drifts:
            found.append((volley, Volley(order[:1], look=order[0])))
        else:
            found.append((replace(volley, look=order[pick(len(order), rng)]),))
    return found


def pick(count: int, rng: np.random.Generator) -> int:
    """One of so many, each alike."""
    return int(rng.integers(count))


def few(most: int, rng: np.random.Generator) -> int:
    """From 1 to ``most``, small numbers more often: each doubling alike."""
    return min(most, int((most + 1) ** rng.random()))


def _checkpoints(count: int, rng: np.random.Generator) -> set[int]:
    """The bursts that are checked: one before any timing may be given up, one later."""
    sooner = min(count, LEAST_BURSTS)
    later = [sooner + pick(count - sooner, rng)] if count > sooner else []
    return {pick(sooner, rng), *later}


def _bystander_at(count: int, checked: set[int], rng: np.random.Generator) -> int | None:
    """The burst that ends early, so that a set can be looked at that was not launched on."""
    others = [burst for burst in range(count) if burst not in checked]
    return others[pick(len(others), rng)] if others else None
