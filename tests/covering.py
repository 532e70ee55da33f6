"""Few points of a space that show much of it."""

from collections.abc import Iterable
from itertools import combinations

from tuner.trial import Configuration


def covering(points: Iterable[Configuration], strength: int) -> list[Configuration]:
    """Points among which every combination of so many values occurs that occurs among all."""
    shown = {point: set(combinations(point.values, strength)) for point in points}
    left = set().union(*shown.values())
    chosen = []
    while left:
        chosen.append(max(shown, key=lambda point: len(left & shown[point])))
        left -= shown[chosen[-1]]
    return chosen
