"""Enumerate a parameter space without building its Cartesian product.

Binds one parameter after the other, in the order that makes conditions decidable soonest, and drops
a partial point once it is infeasible on every shape. Works depth first on chunks of rows, so memory
stays bounded. Independent of experiments and devices.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tuner.errors import SpecError
from tuner.space.conditions import Bools, Condition
from tuner.trial import Value

Ordinals = npt.NDArray[np.uint16]

CHUNK = 1 << 17
MAX_BYTES = 1 << 28
MAX_VALUES = 1 << 16
MAX_TESTS = 1 << 26
"""Most tests of one condition, about half a minute, before the space is refused."""


@dataclass(slots=True)
class Tally:
    """Counts for one condition: points of the product rejected, rows tested and passed."""

    label: str
    rejected: int = 0
    reached: int = 0
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The feasible rows in lexicographic order.

    ``rows`` holds one ordinal per parameter (N × parameters), ``mask`` feasibility by shape
    (N × shapes); ``tallies`` are in the order of evaluation.
    """

    rows: Ordinals
    mask: Bools
    tallies: tuple[Tally, ...]


def enumerate_feasible(
    parameters: Mapping[str, Sequence[Value]],
    conditions: Sequence[Condition],
    shapes: Sequence[Mapping[str, Value]],
) -> Enumeration:
    """Every point that meets all conditions on at least one shape.

    Raises:
        SpecError: the feasible set does not fit into memory, or takes too long to find.
    """
    for name, values in parameters.items():
        require_few(name, len(values))
    walk = _Walk(parameters, conditions, shapes)
    width = len(parameters) * np.dtype(np.uint16).itemsize + len(shapes)
    rows: list[Ordinals] = []
    masks: list[Bools] = []
    size = 0
    for chunk, mask in walk.run():
        size += len(chunk)
        if size * width > MAX_BYTES:
            raise SpecError(
                f"the search space has more than {size:,} feasible configurations, too many to "
                "hold in memory; remove values or add constraints"
            )
        rows.append(chunk)
        masks.append(mask)
    columns = [list(walk.order).index(name) for name in parameters]
    found = np.concatenate(rows)[:, columns] if rows else np.empty((0, len(columns)), np.uint16)
    mask = np.concatenate(masks) if masks else np.empty((0, len(shapes)), np.bool_)
    if columns:
        sequence = np.lexsort(found.T[::-1])
        found, mask = np.ascontiguousarray(found[sequence]), mask[sequence]
    return Enumeration(found, mask, walk.tallies)


def require_few(name: str, count: int) -> None:
    """Refuse a parameter of more than :data:`MAX_VALUES` values with a ``SpecError``."""
    if count > MAX_VALUES:
        raise SpecError(f"parameter {name} has {count} values; at most {MAX_VALUES}")


def _binding_order(
    parameters: Mapping[str, Sequence[Value]], conditions: Sequence[Condition]
) -> tuple[str, ...]:
    """The order of parameters: repeatedly complete the condition with the smallest product."""
    order: dict[str, None] = {}
    waiting = [condition.names & parameters.keys() for condition in conditions]
    while waiting := [names for names in waiting if not names <= order.keys()]:
        cheapest = min(
            waiting, key=lambda names: math.prod(len(parameters[n]) for n in names - order.keys())
        )
        order.update((name, None) for name in parameters if name in cheapest)
    order.update((name, None) for name in parameters)
    return tuple(order)


@dataclass(slots=True)
class _Walk:
    parameters: Mapping[str, Sequence[Value]]
    conditions: Sequence[Condition]
    shapes: Sequence[Mapping[str, Value]]
    order: tuple[str, ...] = field(init=False)
    tallies: tuple[Tally, ...] = field(init=False)
    _columns: dict[str, npt.NDArray[np.generic]] = field(init=False)
    _due: list[list[tuple[Condition, Tally]]] = field(init=False)
    _beyond: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.order = _binding_order(self.parameters, self.conditions)
        self._columns = {name: np.array(values) for name, values in self.parameters.items()}
        position = {name: depth for depth, name in enumerate(self.order, start=1)}
        self._due = [[] for _ in range(len(self.order) + 1)]
        for condition in self.conditions:
            depth = max((position.get(name, 0) for name in condition.names), default=0)
            self._due[depth].append((condition, Tally(condition.label)))
        for due in self._due:
            due.sort(key=lambda pair: self._varies(pair[0]))
        self.tallies = tuple(tally for due in self._due for _, tally in due)
        sizes = [len(self.parameters[name]) for name in self.order]
        self._beyond = [math.prod(sizes[depth:]) for depth in range(len(sizes) + 1)]

    def run(self) -> Iterator[tuple[Ordinals, Bools]]:
        start = np.empty((1, 0), np.uint16)
        yield from self._descend(start, np.ones((1, len(self.shapes)), np.bool_))

    def _descend(self, rows: Ordinals, mask: Bools) -> Iterator[tuple[Ordinals, Bools]]:
        depth = rows.shape[1]
        for condition, tally in self._due[depth]:
            if not len(rows):
                return
            rows, mask = self._filter(condition, tally, rows, mask)
        if depth == len(self.order):
            yield rows, mask
            return
        count = len(self.parameters[self.order[depth]])
        step = max(1, CHUNK // count)
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            wider = np.empty((len(part) * count, depth + 1), np.uint16)
            wider[:, :depth] = np.repeat(part, count, axis=0)
            wider[:, depth] = np.tile(np.arange(count, dtype=np.uint16), len(part))
            yield from self._descend(wider, np.repeat(mask[first : first + step], count, axis=0))

    def _filter(
        self, condition: Condition, tally: Tally, rows: Ordinals, mask: Bools
    ) -> tuple[Ordinals, Bools]:
        depth = rows.shape[1]
        columns = {
            name: self._columns[name][rows[:, at]]
            for at, name in enumerate(self.order[:depth])
            if name in condition.names
        }
        if self._varies(condition):
            mask = mask & np.stack(
                [condition.holds({**shape, **columns}, len(rows)) for shape in self.shapes], axis=1
            )
            alive = mask.any(axis=1)
        else:
            alive = condition.holds(columns, len(rows))
        kept = int(np.count_nonzero(alive))
        tally.reached += len(rows)
        if tally.reached > MAX_TESTS:
            raise SpecError(
                f"the search space takes too long to enumerate: more than {MAX_TESTS:,} points "
                f"reach {tally.label}; remove values, or add constraints on fewer parameters"
            )
        tally.passed += kept
        tally.rejected += (len(rows) - kept) * self._beyond[depth]
        return (rows, mask) if kept == len(rows) else (rows[alive], mask[alive])

    def _varies(self, condition: Condition) -> bool:
        return not condition.names <= self.parameters.keys()
