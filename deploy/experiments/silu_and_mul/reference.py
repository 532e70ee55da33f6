"""What ``silu_and_mul`` computes, in float64."""

import numpy as np


def silu_and_mul(input, **_sizes):  # noqa: A002
    """``silu(gate) * up``; each row of ``input`` [tokens, 2 d] holds the gates, then the ups."""
    gate, up = np.split(input, 2, axis=-1)
    with np.errstate(over="ignore"):
        return {"out": gate / (1.0 + np.exp(-gate)) * up}
