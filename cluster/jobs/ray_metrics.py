"""A run's metrics for Ray's own exporter, from the driver: ``ray.util.metrics``.

To be imported where Ray may be. The metrics and their values are those of
:mod:`cluster.watching.metrics`; Ray exports them on each node's metrics port, with the prefix
``ray_``.
"""

import time

from ray.util.metrics import Counter, Gauge

from cluster.watching.metrics import OF_A_DRIVER, Metric, samples
from tuner.journal.counts import RunCounts

PUBLISH_SECONDS = 5.0
"""Between two hand-overs to Ray, which exports every ten seconds by default."""


class DriverMetrics:
    """The metrics of the run that this process drives.

    Args:
        run: the run's name, the label ``run``.
    """

    def __init__(self, run: str) -> None:
        self.counts = RunCounts()
        """To be told every fact that this process journals."""
        self._run = run
        self._exported = {metric: _exported(metric) for metric in OF_A_DRIVER}
        self._published: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._speedup: float | None = None
        self._due = 0.0

    def publish(self, speedup: float | None, *, now: bool = False) -> None:
        """Hand what has changed to Ray, at most every :data:`PUBLISH_SECONDS` unless ``now``.

        Args:
            speedup: the best of the search, if there is one.
            now: whether to do so however short ago the last time was.
        """
        self._speedup = max(filter(None, (self._speedup, speedup)), default=None)
        if not now and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PUBLISH_SECONDS
        for one in samples(self.counts, self._speedup):
            key = one.metric, tuple(one.labels.values())
            before = self._published.get(key, 0.0)
            tags = {"run": self._run, **one.labels}
            exported = self._exported[one.metric]
            if isinstance(exported, Gauge):
                exported.set(one.value, tags=tags)
            elif one.value > before:
                exported.inc(one.value - before, tags=tags)
            self._published[key] = one.value


def _exported(metric: Metric) -> Counter | Gauge:
    kind = Counter if metric.kind == "counter" else Gauge
    return kind(metric.name, description=metric.help, tag_keys=("run", *metric.labels))
