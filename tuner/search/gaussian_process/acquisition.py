"""Targets of the process from losses, and expected improvement from its predictions.

Log expected improvement as in Ament et al., *Unexpected Improvements to Expected Improvement for
Bayesian Optimization*, 2023.
"""

import numpy as np
from scipy.special import erfcx, log_ndtr

from tuner.search.gaussian_process.encoding import Floats
from tuner.search.gaussian_process.posterior import Prediction

HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)


def log_ranks(losses: Floats, among: Floats) -> Floats:
    """The log of each loss's rank in the sorted array ``among``: mean about 0, deviation about 1.

    Equal losses share their mean rank; failures, as infinite losses, tie at the worst. Ranks remove
    the long tail of slow configurations; the logarithm resolves the best and merges the slow half.
    """
    below = np.searchsorted(among, losses, side="left")
    through = np.searchsorted(among, losses, side="right")
    return np.asarray(1 + np.log((below + through) / (2 * len(among))))


def log_expected_improvement(prediction: Prediction, best: Floats) -> Floats:
    """The logarithm of the expected gain below ``best``, accurate far into the tail.

    ``best`` has one value for each objective; the result is objectives × points.
    """
    score = (best[:, None] - prediction.mean) / prediction.deviation
    density = -0.5 * score * score - HALF_LOG_TAU
    # log(φ(z) + z Φ(z)) = log φ(z) + log(1 + z Φ(z)/φ(z)); Φ/φ through erfcx where z is negative.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = np.sqrt(np.pi / 2) * erfcx(-np.minimum(score, 0) / np.sqrt(2))
        tail = np.where(score < -1e3, -2 * np.log(-score), np.log1p(score * ratio))
        near = np.log(np.exp(density) + score * np.exp(log_ndtr(score)))
    return np.asarray(np.where(score > -1, near, density + tail) + np.log(prediction.deviation))
