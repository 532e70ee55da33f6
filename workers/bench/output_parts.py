"""The parts of outputs that are compared where another kernel is the judge.

Whatever is compared in the supervisor is sent there first, so of a large output only some rows are,
at random: a kernel that gains by leaving work out leaves out much of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tuner.experiment.arguments import ResolvedArgument, item_bytes
from tuner.experiment.contents import Unordered
from workers.devices.port import DeviceFailure
from workers.groups import group_source

COMPARED = 1 << 18
"""Elements of a part, at most."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Consecutive rows of an output as an argument of their own, and the first byte of them.

    ``place`` is the part in NumPy's notation, such as ``out[640:]``; empty for all of the output.
    """

    argument: ResolvedArgument
    start: int = 0
    place: str = ""

    @property
    def bytes(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        return self.start, self.start + self.argument.size


def compared_parts(
    arguments: Sequence[ResolvedArgument], rng: np.random.Generator
) -> dict[str, OutputPart]:
    """What is compared of each output: all, or random rows of a large one.

    One that is compared in any order has no parts: a large one is left out, but now and then.
    """
    outputs = [argument for argument in arguments if argument.is_output]
    whole = {
        a.name
        for a in outputs
        if a.elements <= COMPARED
        or (isinstance(a.compare, Unordered) and rng.random() < COMPARED / a.elements)
    }
    whole |= {group_source(a) or a.name for a in outputs if a.name in whole}
    return {
        a.name: OutputPart(a) if a.name in whole else _random_rows(a, rng)
        for a in outputs
        if a.name in whole or not isinstance(a.compare, Unordered)
    }


def _random_rows(argument: ResolvedArgument, rng: np.random.Generator) -> OutputPart:
    """Rows along the axis whose steps are the longest, so that no others lie between them.

    Where one row is too large, rows within a random one, and so on.
    """
    shape, start, firsts = list(argument.shape), 0, [""] * len(argument.shape)
    longest = sorted(zip(argument.strides, range(len(shape)), strict=True), reverse=True)
    for step, axis in longest:
        elements, extent = math.prod(shape), shape[axis]
        if elements <= COMPARED:
            break
        shape[axis] = max(1, COMPARED * extent // elements)
        first = int(rng.integers(extent - shape[axis] + 1))
        start += first * step
        firsts[axis] = str(first)
    while not firsts[-1]:
        firsts.pop()
    place = f"{argument.name}[{', '.join(f'{first}:' for first in firsts)}]"
    part = replace(argument, shape=tuple(shape))
    return OutputPart(part, start * item_bytes(argument.dtype), place)


@contextmanager
def within(parts: Mapping[str, OutputPart]) -> Iterator[None]:
    """Say of a failure within which parts its indices count."""
    try:
        yield
    except DeviceFailure as failure:
        if places := ", ".join(part.place for part in parts.values() if part.place):
            failure.detail += f"; indices within {places}"
        raise
