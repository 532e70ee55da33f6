"""The parts of outputs that are compared where another kernel is the judge.

Whatever is compared in the supervisor is sent there first, so of a large output only some rows are,
at random: a kernel that gains by leaving work out leaves out much of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tuner.experiment.arguments import ResolvedArgument, item_bytes
from tuner.experiment.contents import Unordered
from workers.devices.port import DeviceFailure
from workers.groups import group_source

COMPARED = 1 << 18
"""Elements of a part, or a row if that has more."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Consecutive rows of an output as an argument of their own, and the first byte of them.

    ``place`` is the part in NumPy's notation, such as ``out[640:]``.
    """

    argument: ResolvedArgument
    start: int
    place: str

    @property
    def bytes(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        return self.start, self.start + self.argument.size


def output_parts(
    arguments: Sequence[ResolvedArgument], rng: np.random.Generator
) -> dict[str, OutputPart]:
    """Random parts of the outputs that are large; of those whose elements belong together none."""
    together = {group_source(a) for a in arguments if a.is_output}
    return {
        a.name: _random_rows(a, rng)
        for a in arguments
        if a.is_output
        and a.elements > COMPARED
        and a.name not in together
        and not isinstance(a.compare, Unordered)
    }


def _random_rows(argument: ResolvedArgument, rng: np.random.Generator) -> OutputPart:
    """Rows along the axis whose steps are the longest, so that no others lie between them."""
    shape, strides = argument.shape, argument.strides
    axis = max(range(len(shape)), key=lambda one: (shape[one] > 1, strides[one]))
    rows = max(1, COMPARED * shape[axis] // argument.elements)
    first = int(rng.integers(shape[axis] - rows + 1))
    part = replace(argument, shape=(*shape[:axis], rows, *shape[axis + 1 :]))
    place = f"{argument.name}[{':, ' * axis}{first}:]"
    return OutputPart(part, first * strides[axis] * item_bytes(argument.dtype), place)


@contextmanager
def within(parts: Mapping[str, OutputPart]) -> Iterator[None]:
    """Say of a failure within which parts its indices count."""
    try:
        yield
    except DeviceFailure as failure:
        if parts:
            places = ", ".join(part.place for part in parts.values())
            failure.detail += f"; indices within {places}"
        raise
