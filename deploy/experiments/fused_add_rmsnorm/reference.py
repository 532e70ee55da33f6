"""What ``fused_add_rmsnorm`` computes, in float64."""

import numpy as np


def fused_add_rmsnorm(input, residual, weight, eps, **_sizes):  # noqa: A002
    """Add ``input`` [tokens, d] to ``residual``; normalise and weight the sum into ``input``."""
    total = input + residual
    scale = 1.0 / np.sqrt(np.mean(total * total, axis=-1, keepdims=True) + eps)
    return {"input": total * scale * weight, "residual": total}
