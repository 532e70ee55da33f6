"""Which finalists lead after the first process of a confirmation, so that only these go on."""

import math
from collections.abc import Mapping, Sequence

from tuner.journal.history import History
from tuner.results.evidence import Evidence
from tuner.results.statistics import MARGIN


def leading_at_most(top: int) -> int:
    """How many finalists go on for their mean over the tune shapes, of ``top`` confirmed ones."""
    return max(2, (top + 1) // 2)


def leading(history: History, finalists: Sequence[int]) -> tuple[int, ...]:
    """The finalists that lead in their first process, in the order of ``finalists``.

    Those are the best over all tune shapes, and of each shape the best, if it is faster there than
    the best over all by more than counts. Only first processes are compared, so that a finalist
    that went on stays, whatever its further processes say.
    """
    evidence = Evidence(history, history.experiment.measure.cache)
    tune = range(len(history.experiment.shapes.tune))
    means = _first({one: evidence.mean_logs(dict.fromkeys(tune, one)) for one in finalists})
    ranked = sorted(means, key=lambda one: -means[one])
    chosen = set(ranked[: leading_at_most(history.experiment.confirm.top)])
    for shape in tune:
        logs = _first({one: evidence.logs(one, shape) for one in finalists})
        best = max(logs, key=lambda one: logs[one], default=None)
        if best is None:
            continue
        least = logs.get(ranked[0], -math.inf) if ranked else -math.inf
        if logs[best] > least + math.log1p(MARGIN):
            chosen.add(best)
    return tuple(one for one in finalists if one in chosen)


def _first(logs: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Of each trial, the log speedup in its first process."""
    return {trial: found[min(found)] for trial, found in logs.items() if found}
