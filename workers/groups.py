"""The groups within which the elements of an unordered output may be in any order."""

from collections.abc import Callable

import numpy as np

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.contents import Keys, Segments, Unordered
from workers.elements import Array

Groups = tuple[Array, Array]
"""The group of each element of an output, and of its oracle."""


def group_source(argument: ResolvedArgument) -> str | None:
    """The name of the argument that an output's groups are made of, if any."""
    match argument.compare:
        case Unordered(unordered=Segments(segments=name) | Keys(key=name)):
            return name
    return None


def groups(
    argument: ResolvedArgument, got: Callable[[str], Array], want: Callable[[str], Array]
) -> Groups | None:
    """The groups of an output and its oracle; ``None`` if all elements are one group.

    Args:
        argument: an output that is compared unordered.
        got: an argument's dense contents after the launch.
        want: what they should be.
    """
    match argument.compare:
        case Unordered(unordered="rows"):
            rows = np.arange(argument.elements) // argument.shape[-1]
            return rows, rows
        case Unordered(unordered=Segments(segments=name)):
            found = _segments(want(name).reshape(-1), argument.elements)
            return found, found
        case Unordered(unordered=Keys(key=name)):
            return got(name).reshape(-1), want(name).reshape(-1)
    return None


def _segments(offsets: Array, elements: int) -> Array:
    """The segment of each element; one outside all segments is a group of its own."""
    places = np.arange(elements)
    found = np.searchsorted(offsets, places, side="right")
    outside = (found == 0) | (found == offsets.size)
    return np.where(outside, offsets.size + 1 + places, found)
