"""The exact feasible set of a template on a device, as an indexed table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.check.device import require_dtypes, require_launches
from tuner.experiment.model import Experiment, Template
from tuner.space.conditions import Bools, conditions
from tuner.space.enumeration import Ordinals, Tally, enumerate_feasible
from tuner.trial import Configuration, Value

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rejection:
    """How many points of the Cartesian product a condition rejected, before any later one."""

    condition: str
    points: int


@dataclass(frozen=True, slots=True, eq=False)
class FeasibleSet:
    """Configurations feasible on at least one tune shape, numbered in lexicographic order.

    ``rows`` is N × parameters: the ordinal of each value in its parameter's list. ``mask`` is
    N × shapes: where a configuration is feasible. ``cartesian`` is the size of the full product.
    """

    parameters: Mapping[str, tuple[Value, ...]]
    rows: Ordinals
    mask: Bools
    rejections: tuple[Rejection, ...] = ()
    _keys: npt.NDArray[np.void] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", _keys(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

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
        """The number of each row of ordinals, -1 where it is not in the set."""
        if not len(self):
            return np.full(len(rows), -1)
        keys = _keys(rows)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.where(self._keys[at] == keys, at, -1)

    def neighbours(self, index: int) -> Indices:
        """The configurations that differ from this one in exactly one parameter, ascending."""
        row = self.rows[index]
        candidates = []
        for column, values in enumerate(self.parameters.values()):
            others = np.delete(np.arange(len(values)), int(row[column]))
            block = np.repeat(row[None, :], len(others), axis=0)
            block[:, column] = others
            candidates.append(block)
        if not candidates:
            return np.empty(0, np.intp)
        found = self.find(np.concatenate(candidates))
        return np.sort(found[found >= 0])


def feasible_set(experiment: Experiment, template: Template, device: Device) -> FeasibleSet:
    """Enumerate a template's configurations for the experiment's tune shapes on a device.

    Raises:
        SpecError: the set is empty, naming the condition that emptied it, or too big for memory; or
            the device lacks an element type.
    """
    require_dtypes(experiment, device)
    require_launches(experiment, device)
    shapes = [binding.symbols for binding in experiment.shapes.tune]
    found = enumerate_feasible(
        template.parameters, conditions(experiment, template, device), shapes
    )
    if not len(found.rows):
        raise SpecError(_why_empty(found.tallies))
    rejections = tuple(
        Rejection(tally.label, tally.rejected) for tally in found.tallies if tally.rejected
    )
    return FeasibleSet(template.parameters, found.rows, found.mask, rejections)


def recorded_set(parameters: Mapping[str, tuple[Value, ...]], rows: npt.ArrayLike) -> FeasibleSet:
    """A set for one shape from its rows of ordinals, as recorded spaces and tests give them."""
    unique = np.unique(np.asarray(rows, np.uint16), axis=0)
    return FeasibleSet(parameters, unique, np.ones((len(unique), 1), np.bool_))


def _keys(rows: Ordinals) -> npt.NDArray[np.void]:
    """Each row as one opaque value whose bytes sort like the row."""
    if not rows.shape[1]:
        return np.zeros(len(rows), "V1")
    return np.ascontiguousarray(rows, ">u2").view(f"V{2 * rows.shape[1]}")[:, 0]


def _why_empty(tallies: Sequence[Tally]) -> str:
    culprit = next(tally for tally in tallies if tally.reached and not tally.passed)
    before = [
        f"{tally.rejected:,} by {tally.label}"
        for tally in tallies
        if tally.rejected and tally is not culprit
    ]
    message = (
        f"no configuration is feasible: none of those left meets {culprit.label} "
        f"(it rejected the last {culprit.rejected:,} of the product)"
    )
    return f"{message}; before it, rejected: {', '.join(before)}" if before else message
