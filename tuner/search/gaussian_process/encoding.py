"""Configurations as one-hot columns, and distances between values as tables.

Each parameter has up to two weights: one on the squared difference of its ordinals, scaled to
[0, 1], and one on whether two values differ at all. Weighted, they make one table per parameter; a
sum over parameters of such tables, for many pairs of points, is two matrix products.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.space.feasible import FeasibleSet

MAX_LEVELS = 64
"""Parameters with more values share levels between neighbouring values."""

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Points = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A table (levels × levels) of one parameter's distances, which one weight multiplies."""

    parameter: int
    ordinal: bool
    table: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """The P parameters that vary, each with one column per level, ``width`` columns in all.

    ``positions`` are the varying parameters' columns in the rows of ``space``.
    ``values`` and ``levels`` are counts by parameter, ``blocks`` their ranges of columns, and
    ``terms`` the tables that the weights multiply.
    """

    space: FeasibleSet
    positions: Points
    values: Points
    levels: Points
    width: int
    blocks: tuple[slice, ...]
    terms: tuple[Term, ...]

    @classmethod
    def of(cls, space: FeasibleSet) -> "Encoding":
        """The encoding of a feasible set's points."""
        varying = [
            (position, values)
            for position, values in enumerate(space.parameters.values())
            if len(values) > 1
        ]
        levels = np.array([min(len(values), MAX_LEVELS) for _, values in varying], np.intp)
        ends = np.cumsum(levels)
        terms: list[Term] = []
        for parameter, ((_, values), count) in enumerate(zip(varying, levels, strict=True)):
            if count > 2 and not isinstance(values[0], str):
                unit = np.linspace(0.0, 1.0, count)
                terms.append(Term(parameter, True, np.square(unit[:, None] - unit)))
            terms.append(Term(parameter, False, 1.0 - np.eye(count)))
        return cls(
            space=space,
            positions=np.array([position for position, _ in varying], np.intp),
            values=np.array([len(values) for _, values in varying], np.intp),
            levels=levels,
            width=int(levels.sum()),
            blocks=tuple(map(slice, ends - levels, ends)),
            terms=tuple(terms),
        )

    def one_hot(self, points: Points) -> Singles:
        """The points as rows of zeros and ones, n × ``width``."""
        starts = np.cumsum(self.levels) - self.levels
        encoded = np.zeros((len(points), self.width), np.float32)
        encoded[np.arange(len(points))[:, None], self._levels(points) + starts] = 1
        return encoded

    def unit(self, points: Points) -> Singles:
        """The points' levels scaled to [0, 1], n × P."""
        return (self._levels(points) / (self.levels - 1)).astype(np.float32)

    def table(self, weights: Floats) -> Floats:
        """Squared distances between levels: block-diagonal, ``width`` × ``width``."""
        table = np.zeros((self.width, self.width))
        for weight, term in zip(weights, self.terms, strict=True):
            block = self.blocks[term.parameter]
            table[block, block] += weight * term.table
        return table

    def gradient(self, by_entry: Floats) -> Floats:
        """The derivative by each weight of a sum whose derivative by each table entry is given."""
        blocks = [self.blocks[term.parameter] for term in self.terms]
        return np.array(
            [
                np.vdot(by_entry[block, block], term.table)
                for block, term in zip(blocks, self.terms, strict=True)
            ]
        )

    def _levels(self, points: Points) -> Points:
        ordinals = self.space.rows[points][:, self.positions].astype(np.intp)
        return ordinals * self.levels // self.values
