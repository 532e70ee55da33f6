"""The covariance of the process, with hyperparameters at the maximum of their posterior.

Source: Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006, chapters 4 and 5.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize

from tuner.search.gaussian_process.encoding import Encoding, Floats, Points, Singles

ITERATIONS = 25
BOUND = 4.0
"""Hyperparameters stay within this many standard deviations of their prior's median."""

# Log-normal priors: the median, and the standard deviation of the logarithm. Targets have unit
# variance; the medians of weights are divided by the number of parameters. Wide priors overfit the
# first few trials, and the search then stops exploring.
ORDINAL, CATEGORICAL, WEIGHT_SPREAD = 5.0, 0.8, 0.8
NOISE, NOISE_SPREAD = 0.01, 1.5
VARIANCE, VARIANCE_SPREAD = 1.0, 0.5

LEAST_NOISE = 1e-3
"""Share of the variance. Keeps single-precision covariances positive definite."""


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """Matérn-3/2 on a sum of distances, one table for each parameter of an :class:`Encoding`.

    ``distances`` is what each pair of levels adds to the squared distance, ``width`` × ``width``.
    """

    distances: Singles
    variance: float
    noise: float

    def between(self, one: Singles, other: Singles) -> Singles:
        """The covariance of points given as one-hot rows, n × m."""
        shape, _ = matern((one @ self.distances) @ other.T)
        return np.asarray(self.variance * shape, np.float32)


def matern(squared: Floats | Singles) -> tuple[Floats | Singles, Floats | Singles]:
    """Matérn-3/2 at squared distances, and its derivative with respect to them."""
    root = np.sqrt(3.0 * np.maximum(squared, 0))
    decay = np.exp(-root)
    return (1 + root) * decay, -1.5 * decay


def fit(encoding: Encoding, points: Points, targets: Floats) -> Covariance:
    """The covariance of the most probable hyperparameters, given ``targets`` at ``points``.

    Always starts from the prior's median, so the result depends on the arguments alone.
    """
    problem = NegativeLogPosterior(encoding, points, targets)
    size = len(problem.median)
    found = optimize.minimize(
        problem,
        np.zeros(size),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-BOUND, BOUND)] * size,
        options={"maxiter": ITERATIONS},
    )
    return problem.covariance(found.x)


class NegativeLogPosterior:
    """The objective of the fit, over standardised logarithms of weights, noise and variance."""

    def __init__(self, encoding: Encoding, points: Points, targets: Floats) -> None:
        self.encoding = encoding
        self.targets = targets
        self.rows = encoding.one_hot(points).astype(np.float64)
        weights = [
            (ORDINAL if term.ordinal else CATEGORICAL) / len(encoding.blocks)
            for term in encoding.terms
        ]
        self.median = np.log([*weights, NOISE, VARIANCE])
        self.spread = np.array([*[WEIGHT_SPREAD] * len(weights), NOISE_SPREAD, VARIANCE_SPREAD])

    def covariance(self, standard: Floats) -> Covariance:
        """The covariance at a standardised point."""
        *weights, noise, variance = np.exp(self.median + self.spread * standard)
        distances = self.encoding.table(np.array(weights)).astype(np.float32)
        noise = max(noise, LEAST_NOISE * variance)
        return Covariance(distances=distances, variance=float(variance), noise=float(noise))

    def __call__(self, standard: Floats) -> tuple[float, Floats]:
        """The objective and its gradient."""
        *weights, noise, variance = np.exp(self.median + self.spread * standard)
        distances = self.encoding.table(np.array(weights))
        shape, slope = matern(self.rows @ distances @ self.rows.T)
        covariance = variance * shape
        covariance[np.diag_indices_from(covariance)] += noise
        factor, failed = linalg.lapack.dpotrf(covariance, lower=1, clean=1)
        if failed:
            return 1e10, np.zeros_like(standard)
        solved = linalg.lapack.dpotrs(factor, self.targets, lower=1)[0]
        inverse = linalg.lapack.dpotri(factor, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        value = (
            0.5 * self.targets @ solved
            + np.log(np.diagonal(factor)).sum()
            + 0.5 * standard @ standard
        )
        # The derivative of the likelihood is trace(sensitivity · derivative of covariance) / 2.
        sensitivity = inverse - np.outer(solved, solved)
        by_entry = variance * (self.rows.T @ (sensitivity * slope) @ self.rows)
        gradient = 0.5 * np.array(
            [
                *np.array(weights) * self.encoding.gradient(by_entry),
                noise * np.trace(sensitivity),
                variance * np.vdot(sensitivity, shape),
            ]
        )
        return float(value), self.spread * gradient + standard
