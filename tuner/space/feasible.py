"""The feasible set of a template on a device, as an indexed table: all of it, or a sample."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.check.device import require_dtypes, require_launches, require_memory
from tuner.experiment.model import Experiment, Template
from tuner.space.conditions import Bools, Condition, conditions
from tuner.space.enumeration import Ordinals, Tally, enumerate_feasible, feasible_on
from tuner.trial import Configuration, Value

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rejection:
    """How many points of the Cartesian product a condition rejected, before any later one.

    ``problem`` says why the condition cannot be evaluated at the first of them, if that is why.
    """

    condition: str
    points: int
    problem: str = ""


@dataclass(slots=True, eq=False)
class FeasibleSet:
    """Configurations feasible on at least one tune shape, numbered in lexicographic order.

    ``rows`` is N × parameters: the ordinal of each value in its parameter's list. ``mask`` is
    N × shapes: where a configuration is feasible.

    A set too big to be enumerated is a sample, in order. It has an ``estimate`` of how many
    configurations are feasible in all, and ``feasible`` tests rows. Whatever feasible configuration
    is looked up later is appended to ``rows``, not to ``mask``, and gets the next number;
    ``drawn`` are the rows of the sample itself.
    """

    parameters: Mapping[str, tuple[Value, ...]]
    rows: Ordinals
    mask: Bools
    rejections: tuple[Rejection, ...] = ()
    estimate: int | None = None
    feasible: Callable[[Ordinals], Bools] | None = field(default=None, repr=False)
    drawn: int = field(init=False)
    _keys: npt.NDArray[np.void] = field(init=False, repr=False)
    _appended: dict[bytes, int] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.drawn = len(self.rows)
        self._keys = _keys(self.rows)

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, tuple[Value, ...]],
        conditions: Sequence[Condition],
        shapes: Sequence[Mapping[str, Value]],
    ) -> "FeasibleSet":
        """The points of the parameters' product that meet all conditions on one of the shapes.

        Raises:
            SpecError: there is none, naming the condition that emptied the set, or a parameter has
                too many values.
        """
        found = enumerate_feasible(parameters, conditions, shapes)
        if not len(found.rows):
            raise SpecError(_why_empty(found.tallies, sampled=found.estimate is not None))
        if found.estimate is not None:
            test = partial(feasible_on, parameters, conditions, shapes)
            return cls(parameters, found.rows, found.mask, (), found.estimate, test)
        rejections = tuple(
            Rejection(tally.label, tally.rejected, tally.problem)
            for tally in found.tallies
            if tally.rejected
        )
        return cls(parameters, found.rows, found.mask, rejections)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """How many configurations are feasible; estimated if the set is a sample."""
        return len(self) if self.estimate is None else self.estimate

    @property
    def cartesian(self) -> int:
        """The number of points of the Cartesian product."""
        size = 1
        for values in self.parameters.values():
            size *= len(values)
        return size

    def configuration(self, index: int) -> Configuration:
        """The configuration of that number."""
        ordinals = self.rows[index].tolist()
        return Configuration(
            tuple(
                (name, values[ordinal])
                for (name, values), ordinal in zip(self.parameters.items(), ordinals, strict=True)
            )
        )

    def index_of(self, configuration: Configuration) -> int | None:
        """The number of a configuration, or ``None`` if it is not in the set."""
        values = configuration.as_dict()
        if values.keys() != self.parameters.keys():
            return None
        ordinals = []
        for name, allowed in self.parameters.items():
            if values[name] not in allowed:
                return None
            ordinals.append(allowed.index(values[name]))
        found = self.find(np.array([ordinals], np.uint16))
        return int(found[0]) if found[0] >= 0 else None

    def find(self, rows: Ordinals) -> Indices:
        """The number of each row of ordinals, -1 where it is infeasible."""
        if not len(self):
            return np.full(len(rows), -1)
        keys = _keys(rows)
        at = np.minimum(np.searchsorted(self._keys, keys), self.drawn - 1)
        found = np.where(self._keys[at] == keys, at, -1)
        return found if self.feasible is None else self._append(rows, found)

    def _append(self, rows: Ordinals, found: Indices) -> Indices:
        """The numbers ``found``, and of those feasible rows that the sample does not have."""
        missing = np.flatnonzero(found < 0)
        assert self.feasible is not None
        missing = missing[self.feasible(rows[missing]).any(axis=1)]
        new = []
        for index in missing.tolist():
            key = rows[index].tobytes()
            if key not in self._appended:
                self._appended[key] = self.drawn + len(self._appended)
                new.append(index)
            found[index] = self._appended[key]
        if new:
            self.rows = np.concatenate([self.rows, rows[new]])
        return found

    def neighbours(self, index: int) -> Indices:
        """The configurations that differ in one parameter, or in two by one step of its list each.

        Steps of two reach what a constraint on both separates. Ordered by the configurations alone.
        """
        row = self.rows[index].astype(np.intp)
        sizes = np.array([len(values) for values in self.parameters.values()], np.intp)
        columns = np.repeat(np.arange(len(sizes)), sizes)
        ordinals = np.concatenate([np.arange(0), *map(np.arange, sizes)])
        moved = ordinals != row[columns]
        columns, ordinals = columns[moved], ordinals[moved]
        single = _changed(row, columns, ordinals)
        steps = np.flatnonzero(np.abs(ordinals - row[columns]) == 1)
        one, other = (steps[at] for at in np.triu_indices(len(steps), 1))
        apart = columns[one] != columns[other]
        one, other = one[apart], other[apart]
        double = _changed(row, columns[one], ordinals[one])
        double[np.arange(len(double)), columns[other]] = ordinals[other]
        found = self.find(np.concatenate([single, double]))
        return found[found >= 0]


def _changed(row: Indices, columns: Indices, ordinals: Indices) -> Ordinals:
    """Copies of a row, each with the ordinal of one column replaced."""
    rows = np.repeat(row[None, :], len(columns), axis=0).astype(np.uint16)
    rows[np.arange(len(rows)), columns] = ordinals
    return rows


def feasible_set(experiment: Experiment, template: Template, device: Device) -> FeasibleSet:
    """A template's configurations for the experiment's tune shapes on a device.

    Raises:
        SpecError: see :meth:`FeasibleSet.of`; or the device lacks an element type, or memory.
    """
    require_dtypes(experiment, device)
    require_launches(experiment, device)
    require_memory(experiment, device)
    shapes = [binding.symbols for binding in experiment.shapes.tune]
    return FeasibleSet.of(template.parameters, conditions(experiment, template, device), shapes)


def recorded_set(parameters: Mapping[str, tuple[Value, ...]], rows: npt.ArrayLike) -> FeasibleSet:
    """A set for one shape from its rows of ordinals, as recorded spaces and tests give them."""
    unique = np.unique(np.asarray(rows, np.uint16), axis=0)
    return FeasibleSet(parameters, unique, np.ones((len(unique), 1), np.bool_))


def _keys(rows: Ordinals) -> npt.NDArray[np.void]:
    """Each row as one opaque value whose bytes sort like the row."""
    if not rows.shape[1]:
        return np.zeros(len(rows), "V1")
    return np.ascontiguousarray(rows, ">u2").view(f"V{2 * rows.shape[1]}")[:, 0]


def _why_empty(tallies: Sequence[Tally], *, sampled: bool) -> str:
    culprit = next(tally for tally in tallies if tally.reached and not tally.passed)
    before = [
        f"{tally.rejected:,} by {tally.label}"
        for tally in tallies
        if tally.rejected and tally is not culprit
    ]
    problem = f"; it cannot be evaluated: {culprit.problem}" if culprit.problem else ""
    if sampled:
        return (
            "the search space is too large to be enumerated, and of a sample of "
            f"{culprit.reached:,} points none meets {culprit.label}{problem}; remove values, or "
            "write it as constraints on fewer parameters each"
        )
    message = (
        f"no configuration is feasible: none of those left meets {culprit.label} "
        f"(it rejected the last {culprit.rejected:,} of the product){problem}"
    )
    return f"{message}; before it, rejected: {', '.join(before)}" if before else message
