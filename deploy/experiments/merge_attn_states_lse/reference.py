"""What ``merge_attn_states_lse`` computes, in float64."""

import numpy as np


def merge_attn_states_lse(prefix_out, prefix_lse, suffix_out, suffix_lse, **_sizes):
    """Mean of two attention results [n, h, d], weighted by ``exp`` of their log-sum-exp [n, h].

    An infinite log-sum-exp, of either sign, counts as minus infinity: an empty part. Two empty
    parts give NaN.
    """
    prefix = np.where(np.isinf(prefix_lse), -np.inf, prefix_lse)
    suffix = np.where(np.isinf(suffix_lse), -np.inf, suffix_lse)
    top = np.maximum(prefix, suffix)
    with np.errstate(invalid="ignore"):
        prefix_weight = np.exp(prefix - top)
        suffix_weight = np.exp(suffix - top)
    total = prefix_weight + suffix_weight
    prefix_share = (prefix_weight / total)[..., np.newaxis]
    suffix_share = (suffix_weight / total)[..., np.newaxis]
    return {
        "out": prefix_out * prefix_share + suffix_out * suffix_share,
        "out_lse": np.log(total) + top,
    }
