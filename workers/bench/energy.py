"""Energy per launch from readings of a device's counter while launches are repeated.

Pure: :class:`workers.bench.session.BenchSession` takes the readings.
"""

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from tuner.errors import EnvironmentProblem
from tuner.trial import Code
from workers.devices.port import DeviceFailure, EnergyReading

LEAST_SHARE = 0.8
"""Share of its timed launch that a repeated one takes at least."""

_Key = TypeVar("_Key", bound=Hashable)


def millijoules_per_launch(readings: Sequence[EnergyReading], timed_ns: float) -> float:
    """The energy between the first and the last reading ÷ the launches between them.

    Args:
        readings: taken when the counter changed.
        timed_ns: a launch as it was timed on restored buffers.

    Raises:
        EnvironmentProblem: the counter changed less than twice, or runs backwards.
        DeviceFailure: repeated launches are faster than timed ones: they leave out work.
    """
    if len(readings) < 2:
        raise EnvironmentProblem("the device's energy counter does not change: set objective: time")
    for one, next_one in pairwise(readings):
        if not (
            one.millijoules < next_one.millijoules
            and one.launches < next_one.launches
            and one.ns < next_one.ns
        ):
            raise EnvironmentProblem("the device's energy counter runs backwards")
    first, last = readings[0], readings[-1]
    launches = last.launches - first.launches
    repeated_ns = (last.ns - first.ns) / launches
    if repeated_ns < LEAST_SHARE * timed_ns:
        detail = (
            f"{repeated_ns:.0f} ns a launch where launches are repeated on the same buffers, "
            f"{timed_ns:.0f} where these are restored: energy cannot be compared"
        )
        raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)
    return (last.millijoules - first.millijoules) / launches


def interleaved(
    measured: Mapping[_Key, Callable[[], float]], rounds: int, rng: np.random.Generator
) -> dict[_Key, float]:
    """The mean of so many measurements of each, taken in rounds of random order.

    So a device that warms up meanwhile favours none.
    """
    keys = list(measured)
    found: dict[_Key, list[float]] = {key: [] for key in keys}
    for _ in range(rounds):
        for key in (keys[place] for place in rng.permutation(len(keys))):
            found[key].append(measured[key]())
    return {key: statistics.fmean(each) for key, each in found.items()}
