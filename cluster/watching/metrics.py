"""The metrics of a run: their names, and their values in the text format of Prometheus.

``watch --web`` serves them; on Ray the driver publishes those of its run under the same names with
the prefix ``ray_`` (:mod:`cluster.jobs.ray_metrics`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cluster.watching.follower import RunPicture
from tuner.journal.counts import RunCounts

STATES = ("starting", "running", "waiting", "interrupted", "finished", "unreadable")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, kind, labels besides ``run``, and what it says."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...]
    help: str


TRIALS = Metric(
    "kernelwright_trials_total",
    "counter",
    ("outcome", "reason"),
    "Trials with an outcome: measured, equal (to one that was measured) or rejected, and why.",
)
BUSY = Metric(
    "kernelwright_busy_seconds_total",
    "counter",
    ("worker", "work"),
    "Seconds that a worker was busy with a kind of work; the rate over all benches is how many "
    "are busy.",
)
LOST = Metric(
    "kernelwright_work_lost_total",
    "counter",
    ("worker", "work"),
    "Work that a worker did not answer because it was lost.",
)
BENCHES = Metric("kernelwright_benches", "gauge", (), "Benches that take work now.")
BENCHES_LOST = Metric(
    "kernelwright_benches_lost_total", "counter", (), "How often a bench was lost."
)
CALLS = Metric(
    "kernelwright_model_calls_total", "counter", ("result",), "Calls to language models."
)
TOKENS = Metric(
    "kernelwright_model_tokens_total",
    "counter",
    ("direction",),
    "Tokens that language models read (input) and wrote (output).",
)
COST = Metric(
    "kernelwright_model_cost_usd_total", "counter", (), "US dollars that language models cost."
)
SPEEDUP = Metric(
    "kernelwright_best_speedup",
    "gauge",
    (),
    "Speedup of the best configuration over the baseline in the search; not confirmed.",
)
STATE = Metric("kernelwright_run_state", "gauge", ("state",), "1 for the state that the run is in.")

OF_A_DRIVER = (TRIALS, BUSY, LOST, BENCHES, BENCHES_LOST, CALLS, TOKENS, COST, SPEEDUP)
"""What a run's own process knows."""

METRICS = (*OF_A_DRIVER, STATE)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric for some labels."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


def samples(counts: RunCounts, speedup: float | None, *, live: bool = True) -> Iterator[Sample]:
    """The values of :data:`OF_A_DRIVER`.

    Args:
        counts: of the run.
        speedup: the best of the search, if there is one.
        live: whether a process is at work on the run.
    """
    for (outcome, reason), count in sorted(counts.trials.items()):
        yield Sample(TRIALS, {"outcome": outcome, "reason": reason}, count)
    for name, worker in sorted(counts.workers.items()):
        for work, seconds in worker.busy.items():
            yield Sample(BUSY, {"worker": name, "work": work}, seconds)
    for (name, work), count in sorted(counts.losses.items()):
        yield Sample(LOST, {"worker": name, "work": work}, count)
    yield Sample(BENCHES, {}, counts.benches if live else 0)
    yield Sample(BENCHES_LOST, {}, counts.benches_lost)
    for result, count in sorted(counts.calls.items()):
        yield Sample(CALLS, {"result": result}, count)
    for direction, count in sorted(counts.tokens.items()):
        yield Sample(TOKENS, {"direction": direction}, count)
    if counts.calls:
        yield Sample(COST, {}, counts.cost_usd)
    if speedup is not None:
        yield Sample(SPEEDUP, {}, speedup)


def prometheus(pictures: Sequence[RunPicture]) -> str:
    """The metrics of all runs, each with the label ``run``, in Prometheus's text format."""
    found: dict[Metric, list[str]] = {metric: [] for metric in METRICS}
    for picture in pictures:
        live = picture.state == "running"
        states = (Sample(STATE, {"state": one}, float(one == picture.state)) for one in STATES)
        for one in (*samples(picture.counts, picture.speedup, live=live), *states):
            labels = ",".join(
                f'{name}="{_escaped(text)}"'
                for name, text in {"run": picture.name, **one.labels}.items()
            )
            found[one.metric].append(f"{one.metric.name}{{{labels}}} {one.value:.10g}\n")
    return "".join(_block(metric, lines) for metric, lines in found.items() if lines)


def _block(metric: Metric, lines: Iterable[str]) -> str:
    head = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
    return head + "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
