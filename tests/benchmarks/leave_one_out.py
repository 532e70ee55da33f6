"""How a choice of strategy carries to an unseen kernel, from scores on recorded spaces."""

import numpy as np


def leave_one_out(results):
    """Text: for each kernel, the best strategy on the others, and its scores on the one left out.

    ``results`` have ``space``, a kernel and a device joined by ``__``, ``strategy`` and ``score``.
    A strategy is judged by its mean over kernels of the mean over their spaces.

    Raises:
        SystemExit: the spaces are of one kernel.
    """
    scores = {}
    for result in results:
        kernel = result["space"].split("__")[0]
        of_kernel = scores.setdefault(kernel, {}).setdefault(result["strategy"], {})
        of_kernel[result["space"]] = result["score"]
    if len(scores) < 2:
        raise SystemExit("--leave-one-kernel-out needs the spaces of two kernels or more")
    lines, left_out = [], {}
    for kernel, mine in scores.items():
        others = [scores[other] for other in scores if other != kernel]
        best = max(mine, key=lambda strategy: np.mean([_mean(one[strategy]) for one in others]))
        left_out |= mine[best]
        lines.append(
            f"{kernel} left out: {best} is best on the others, {_mean(mine[best]):.4f} here"
        )
    worst = min(left_out, key=left_out.get)
    lines.append(f"left-out score: {_mean(left_out):.4f}, worst {left_out[worst]:.4f} ({worst})")
    return "\n".join(lines)


def _mean(scores):
    return float(np.mean(list(scores.values())))
