"""What ``row_softmax`` computes, in float64."""

import numpy as np


def row_softmax(scores, **_sizes):
    """Softmax over the last axis of ``scores`` [rows, columns]; ``-inf`` is a masked score."""
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return {"out": weights / weights.sum(axis=-1, keepdims=True)}
