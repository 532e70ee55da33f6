"""Enumerate a parameter space without building its Cartesian product, or draw a sample of it.

Binds one parameter after the other, in the order that makes conditions decidable soonest, and drops
a partial point once it is infeasible on every shape. Works depth first on chunks of rows, so memory
stays bounded. A space with too many points is sampled: breadth first, keeping a random part of the
partial points at each parameter. Independent of experiments and devices.
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
MAX_VALUES = 1 << 16
MAX_POINTS = 1 << 22
"""Most feasible points that are enumerated: twenty-odd parameters of so many fit into 200 MB."""
MAX_TESTS = 1 << 26
"""Most tests of one condition, about half a minute, before the space is sampled instead."""
SAMPLE = 1 << 16
"""Partial points kept at each parameter of a space that is sampled, and so points drawn at most."""
DRAWN = 1 << 20
"""Most extensions of partial points by one parameter that are tested for a sample."""


@dataclass(slots=True)
class Tally:
    """Counts for one condition: points of the product rejected, rows tested and passed.

    ``problem`` says why it cannot be evaluated at the first point that it rejected for that.
    """

    label: str
    rejected: int = 0
    reached: int = 0
    passed: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The feasible rows in lexicographic order, or a sample of them.

    ``rows`` holds one ordinal per parameter (N × parameters), ``mask`` feasibility by shape
    (N × shapes); ``tallies`` are in the order of evaluation. ``estimate`` is about how many rows
    there are in all if they are a sample, ``None`` if they are all.
    """

    rows: Ordinals
    mask: Bools
    tallies: tuple[Tally, ...]
    estimate: int | None = None


def enumerate_feasible(
    parameters: Mapping[str, Sequence[Value]],
    conditions: Sequence[Condition],
    shapes: Sequence[Mapping[str, Value]],
) -> Enumeration:
    """Every point that meets all conditions on at least one shape; of too many, a random sample.

    The sample is the same in every call with the same arguments.

    Raises:
        SpecError: a parameter has too many values.
    """
    for name, values in parameters.items():
        require_few(name, len(values))
    try:
        return _Walk(parameters, conditions, shapes).everything()
    except _TooManyPoints:
        return _Walk(parameters, conditions, shapes).sample()


def feasible_on(
    parameters: Mapping[str, Sequence[Value]],
    conditions: Sequence[Condition],
    shapes: Sequence[Mapping[str, Value]],
    rows: Ordinals,
) -> Bools:
    """Where each row of ordinals (N × parameters) is feasible, N × shapes."""
    columns = {
        name: np.array(values)[rows[:, at]] for at, (name, values) in enumerate(parameters.items())
    }
    mask = np.ones((len(rows), len(shapes)), np.bool_)
    for condition in conditions:
        mask &= _test(condition, columns, shapes, len(rows))[0]
    return mask


def require_few(name: str, count: int) -> None:
    """Refuse a parameter of more than :data:`MAX_VALUES` values with a ``SpecError``."""
    if count > MAX_VALUES:
        raise SpecError(f"parameter {name} has {count} values; at most {MAX_VALUES}")


def _binding_order(
    parameters: Mapping[str, Sequence[Value]], conditions: Sequence[Condition]
) -> tuple[str, ...]:
    """The order of parameters: repeatedly complete the condition with the smallest product."""
    order: dict[str, None] = {}
    waiting = [condition.requirement.names & parameters.keys() for condition in conditions]
    while waiting := [names for names in waiting if not names <= order.keys()]:
        cheapest = min(
            waiting, key=lambda names: math.prod(len(parameters[n]) for n in names - order.keys())
        )
        order.update((name, None) for name in parameters if name in cheapest)
    order.update((name, None) for name in parameters)
    return tuple(order)


def _test(
    condition: Condition,
    columns: Mapping[str, npt.NDArray[np.generic]],
    shapes: Sequence[Mapping[str, Value]],
    length: int,
) -> tuple[Bools, Bools]:
    """Where a condition holds for columns of values, and is defined, both points × shapes."""
    read = {name: column for name, column in columns.items() if name in condition.requirement.names}
    if condition.requirement.names <= read.keys():
        holds, defined = (
            np.repeat(found[:, None], len(shapes), axis=1) for found in condition.test(read, length)
        )
        return holds, defined
    found = [condition.test({**shape, **read}, length) for shape in shapes]
    return np.stack([one for one, _ in found], axis=1), np.stack([one for _, one in found], axis=1)


class _TooManyPoints(Exception):
    """A walk ended early: more points than are enumerated, or too many tests."""


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
            depth = max((position.get(name, 0) for name in condition.requirement.names), default=0)
            self._due[depth].append((condition, Tally(condition.requirement.label)))
        for due in self._due:
            due.sort(key=lambda pair: self._varies(pair[0]))
        self.tallies = tuple(tally for due in self._due for _, tally in due)
        sizes = [len(self.parameters[name]) for name in self.order]
        self._beyond = [math.prod(sizes[depth:]) for depth in range(len(sizes) + 1)]

    def everything(self) -> Enumeration:
        """All points; raises ``_TooManyPoints`` where they are too many."""
        rows, mask = [np.empty((0, len(self.order)), np.uint16)], [self._root()[1][:0]]
        size = 0
        for chunk, feasible in self._descend(*self._root()):
            size += len(chunk)
            if size > MAX_POINTS:
                raise _TooManyPoints
            rows.append(chunk)
            mask.append(feasible)
        return self._sorted(np.concatenate(rows), np.concatenate(mask))

    def sample(self) -> Enumeration:
        """At most :data:`SAMPLE` points, each drawn with about the same probability."""
        random = np.random.default_rng(0)
        rows, mask = self._root()
        share = 1.0
        for depth in range(len(self.order) + 1):
            if depth:
                count = len(self.parameters[self.order[depth - 1]])
                size = len(rows) * count
                drawn = _distinct(random, size, DRAWN)
                share *= len(drawn) / max(size, 1)
                last = (drawn % count).astype(np.uint16)
                rows = np.column_stack([rows[drawn // count], last])
                mask = mask[drawn // count]
            for condition, tally in self._due[depth]:
                rows, mask = self._filter(condition, tally, rows, mask)
            kept = _distinct(random, len(rows), SAMPLE)
            share *= len(kept) / max(len(rows), 1)
            rows, mask = rows[kept], mask[kept]
        return self._sorted(rows, mask, round(len(rows) / share) if len(rows) else 0)

    def _root(self) -> tuple[Ordinals, Bools]:
        """The one point that binds no parameter."""
        return np.empty((1, 0), np.uint16), np.ones((1, len(self.shapes)), np.bool_)

    def _sorted(self, rows: Ordinals, mask: Bools, estimate: int | None = None) -> Enumeration:
        """The points with their columns in the order of the parameters, ascending."""
        rows = rows[:, [self.order.index(name) for name in self.parameters]]
        if self.order:
            sequence = np.lexsort(rows.T[::-1])
            rows, mask = np.ascontiguousarray(rows[sequence]), mask[sequence]
        return Enumeration(rows, mask, self.tallies, estimate)

    def _descend(self, rows: Ordinals, mask: Bools) -> Iterator[tuple[Ordinals, Bools]]:
        depth = rows.shape[1]
        for condition, tally in self._due[depth]:
            if not len(rows):
                return
            rows, mask = self._filter(condition, tally, rows, mask)
            if tally.reached > MAX_TESTS:
                raise _TooManyPoints
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
            name: self._columns[name][rows[:, at]] for at, name in enumerate(self.order[:depth])
        }
        holds, defined = _test(condition, columns, self.shapes, len(rows))
        before, mask = mask, mask & holds
        alive = mask.any(axis=1)
        if not tally.problem and not defined.all():
            undefined = before & ~defined
            undefined[alive] = False
            for row, shape in np.argwhere(undefined)[:1].tolist():
                ordinals = dict(zip(self.order, rows[row].tolist(), strict=False))
                values = {name: self.parameters[name][at] for name, at in ordinals.items()}
                tally.problem = condition.problem({**self.shapes[shape], **values})
        kept = int(np.count_nonzero(alive))
        tally.reached += len(rows)
        tally.passed += kept
        tally.rejected += (len(rows) - kept) * self._beyond[depth]
        return (rows, mask) if kept == len(rows) else (rows[alive], mask[alive])

    def _varies(self, condition: Condition) -> bool:
        return not condition.requirement.names <= self.parameters.keys()


def _distinct(random: np.random.Generator, size: int, most: int) -> npt.NDArray[np.intp]:
    """All numbers below ``size`` if they are at most ``most``, else about so many of them."""
    if size <= most:
        return np.arange(size)
    return np.unique(random.integers(size, size=most))
