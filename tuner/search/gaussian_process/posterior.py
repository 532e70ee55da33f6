"""The posterior of the process at a pool of candidate points, updated point by point.

One more observation appends a row to the Cholesky factor and to the whitened covariance with the
pool, so a proposal costs one pass over that matrix. Values are an argument of each prediction:
targets are ranks, so every new result changes all of them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg

from tuner.search.gaussian_process.covariance import Covariance
from tuner.search.gaussian_process.encoding import Encoding, Floats, Points, Singles

LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """At each point: the mean, objectives × points, and the standard deviation."""

    mean: Floats
    deviation: Floats


class Posterior:
    """Observed points, in order, against a pool of candidates."""

    def __init__(
        self, encoding: Encoding, covariance: Covariance, pool: Points, capacity: int
    ) -> None:
        """Start without observations; ``capacity`` is how many are expected."""
        self._encoding = encoding
        self._covariance = covariance
        self._pool = encoding.one_hot(pool)
        self._size = 0
        self._rows: Singles = np.empty((capacity, encoding.width), np.float32)
        self._factor: Floats = np.zeros((capacity, capacity))
        self._white: Singles = np.empty((capacity, len(pool)), np.float32)
        self._left = np.full(len(pool), covariance.variance)

    def observe(self, points: Points) -> None:
        """Append points; their values are an argument of :meth:`weights`."""
        old, new = self._size, self._size + len(points)
        if new > len(self._rows):
            self._grow(2 * new)
        rows = self._encoding.one_hot(points)
        own = self._covariance.between(rows, rows).astype(np.float64)
        own[np.diag_indices_from(own)] += self._covariance.noise
        white = self._covariance.between(rows, self._pool)
        if old:
            link = self._whiten(rows).T
            own -= link @ link.T
            white -= link.astype(np.float32) @ self._white[:old]
            self._factor[old:new, :old] = link
        corner = linalg.cholesky(own, lower=True, check_finite=False)
        self._factor[old:new, old:new] = corner
        self._white[old:new] = linalg.solve_triangular(
            corner.astype(np.float32), white, lower=True, overwrite_b=True, check_finite=False
        )
        self._left -= np.square(self._white[old:new]).sum(axis=0)
        self._rows[old:new] = rows
        self._size = new

    def weights(self, values: Floats, pending: npt.NDArray[np.bool_]) -> Floats:
        """The whitened values, observations × objectives, that predictions are computed from.

        A value at a ``pending`` point is unknown: it is set to its prediction from the known ones,
        which changes no mean but reduces the uncertainty nearby.
        """
        known = np.flatnonzero(~pending)
        white = np.zeros(values.shape)  # and stays so where all later ones are pending too
        if not len(known):
            return white
        through = slice(known[-1] + 1)
        factor, pending = self._factor[through, through], pending[through]
        solved = linalg.solve_triangular(
            factor, np.where(pending[:, None], 0.0, values[through]), lower=True, check_finite=False
        )
        if pending.any():
            chosen = np.eye(len(factor))[:, pending]
            columns = linalg.solve_triangular(factor, chosen, lower=True, check_finite=False)
            solved -= columns @ np.linalg.solve(columns.T @ columns, columns.T @ solved)
        white[through] = solved
        return white

    def smooth(self, values: Floats, weights: Floats) -> Floats:
        """The mean at the observed points, in the shape of ``values``: the values without noise."""
        factor = self._factor[: self._size, : self._size]
        solved = linalg.solve_triangular(factor, weights, lower=True, trans=1, check_finite=False)
        return np.asarray(values - self._covariance.noise * solved)

    def narrow(self, chosen: Points) -> None:
        """Keep these positions of the pool alone."""
        self._pool = self._pool[chosen]
        self._white = np.ascontiguousarray(self._white[:, chosen])
        self._left = self._left[chosen]

    def pool(self, weights: Floats) -> Prediction:
        """The prediction at the pool."""
        mean = np.asarray(weights.T.astype(np.float32) @ self._white[: self._size], np.float64)
        return Prediction(mean, np.sqrt(np.maximum(self._left, LEAST_VARIANCE)))

    def at(self, points: Points, weights: Floats) -> Prediction:
        """The prediction at other points."""
        white = self._whiten(self._encoding.one_hot(points))
        left = self._covariance.variance - np.square(white).sum(axis=0)
        return Prediction(weights.T @ white, np.sqrt(np.maximum(left, LEAST_VARIANCE)))

    def _whiten(self, rows: Singles) -> Floats:
        """The whitened covariance between observations and ``rows``, size × n."""
        cross = self._covariance.between(self._rows[: self._size], rows).astype(np.float64)
        factor = self._factor[: self._size, : self._size]
        return np.asarray(linalg.solve_triangular(factor, cross, lower=True, check_finite=False))

    def _grow(self, capacity: int) -> None:
        added = capacity - len(self._rows)
        self._rows = np.pad(self._rows, ((0, added), (0, 0)))
        self._factor = np.pad(self._factor, ((0, added), (0, added)))
        self._white = np.pad(self._white, ((0, added), (0, 0)))
