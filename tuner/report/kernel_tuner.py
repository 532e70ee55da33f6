"""A run's trials in the formats of Kernel Tuner: T4 results, and a cache file.

T4 is the results schema 1.0.0 of the Open Autotuning formats, the cache that of Kernel Tuner 1.1.0.
``time`` is in ms. Where energy was minimised it stands beside: ``energy`` in mJ, or
``energy_delay``, energy × time, in mJ ms. Each is the weighted geometric mean over the tune shapes,
and is left out where timing was cut short, since such a time may not be reported.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.experiment.objective import UNITS, Objective
from tuner.journal.facts import Entry, TrialCompiled, TrialFinished
from tuner.journal.history import History, Trial
from tuner.trial import Code, CutShort, Full, Measured, Rejected, Stage, geometric_mean

T4_VERSION, CACHE_VERSION = "1.0.0", "1.1.0"

_CONSTRAINTS = {Code.THREADS, Code.GRID, Code.SHARED_MEMORY, Code.REGISTERS}
_TIMEOUT = {Code.COMPILE_TIMEOUT, Code.HANG}
_WRONG = {Stage.VERIFY, Stage.TIME}
"""Stages whose rejections say that results, or times of right results, are not to be trusted."""

_CACHE_WORDS = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}
_OTHER_FAILURE = "RuntimeFailedConfig"


@dataclass(frozen=True, slots=True)
class _Row:
    """One finished trial: its state in T4's words, and times in milliseconds.

    ``costs`` are its time, and what else was minimised; ``shapes`` has those of each tune shape.
    """

    trial: Trial
    state: str
    costs: Mapping[str, float]
    shapes: tuple[tuple[str, Mapping[str, float]], ...]
    cut_short: bool
    compile: float
    bench: float
    at: str

    @property
    def times(self) -> list[float]:
        """``time``, as the list of single times that both formats have; we keep none."""
        return [self.costs["time"]] if "time" in self.costs else []


def t4_results(history: History, entries: Sequence[Entry]) -> str:
    """All finished trials as T4 results.

    ``correctness`` is 1 where every result was compared and right, else 0.
    """
    objective = history.experiment.objective
    results = []
    for row in _rows(history, entries):
        measurements: list[dict[str, object]] = [
            {"name": name, "value": cost, "unit": UNITS[name]} for name, cost in row.costs.items()
        ]
        if len(history.experiment.shapes.tune) > 1:
            measurements += [
                {"name": f"{name} {shape}", "value": cost, "unit": UNITS[name]}
                for shape, costs in row.shapes
                for name, cost in costs.items()
            ]
        if row.cut_short:
            said = "slower than the leaders, so not timed in full"
            measurements.append({"name": "cut_short", "value": said, "unit": ""})
        if isinstance(row.trial.outcome, Rejected):
            said = row.trial.outcome.detail
            measurements.append({"name": "reason", "value": said, "unit": ""})
        results.append(
            {
                "timestamp": row.at,
                "configuration": row.trial.configuration.as_dict(),
                "objectives": [objective] if objective in row.costs else [],
                "times": {
                    "compilation_time": row.compile,
                    "benchmark": row.bench,
                    "runtimes": row.times,
                },
                "invalidity": row.state,
                "correctness": int(isinstance(row.trial.outcome, Measured)),
                "measurements": measurements,
            }
        )
    return json.dumps({"schema_version": T4_VERSION, "results": results}, indent=1) + "\n"


def cache_file(history: History, entries: Sequence[Entry]) -> str:
    """All finished trials as a cache file, without those whose timing was cut short."""
    experiment, device = history.experiment, history.device
    template = experiment.template
    parameters = {name: list(v) for name, v in template.parameters.items()} if template else {}
    shapes, objective = experiment.shapes.tune, experiment.objective
    sizes = [v for v in shapes[0].symbols.values() if not isinstance(v, str)]
    cache = {}
    for row in _rows(history, entries):
        if objective not in row.costs and row.state == "correct":
            continue
        failure = _CACHE_WORDS.get(row.state, _OTHER_FAILURE)
        costs: Mapping[str, float | str] = row.costs or dict.fromkeys(("time", objective), failure)
        values = row.trial.configuration.as_dict()
        cache[",".join(map(str, values.values()))] = {
            **values,
            **costs,
            "times": row.times,
            "compile_time": row.compile,
            "verification_time": 0,
            "benchmark_time": row.bench,
            "strategy_time": 0,
            "framework_time": 0,
            "timestamp": row.at,
        }
    document = {
        "schema_version": CACHE_VERSION,
        "device_name": device.name if device else "",
        "kernel_name": template.entry if template else experiment.kernel.entry,
        "problem_size": sizes if len(shapes) == 1 else " | ".join(map(str, shapes)),
        "tune_params_keys": list(parameters),
        "tune_params": parameters,
        "objective": objective,
        "cache": cache,
    }
    return json.dumps(document, indent=1) + "\n"


def _rows(history: History, entries: Sequence[Entry]) -> Iterator[_Row]:
    compiled: dict[int, float] = {}
    finished: dict[int, float] = {}
    for entry in entries:
        match entry.fact:
            case TrialCompiled(trial=number, span=span) if span is not None:
                compiled[number] = 1e3 * (span.ended - span.began)
            case TrialFinished(trial=number):
                finished[number] = entry.at
    for trial in history.trials.values():
        outcome = trial.outcome
        if outcome is None or not trial.current:
            continue
        cells = outcome.cells if isinstance(outcome, Measured) else ()
        pairs = zip(history.experiment.shapes.tune, cells, strict=False)
        objective = history.experiment.objective
        shapes = tuple(
            (str(shape), _costs(cell, objective)) for shape, cell in pairs if isinstance(cell, Full)
        )
        whole = bool(cells) and len(shapes) == len(cells)
        at = datetime.fromtimestamp(finished.get(trial.number, 0.0), UTC)
        yield _Row(
            trial=trial,
            state=_state(outcome),
            costs=_means([costs for _, costs in shapes], history.weights) if whole else {},
            shapes=shapes,
            cut_short=any(isinstance(cell, CutShort) for cell in cells),
            compile=compiled.get(trial.number, 0.0),
            bench=1e3 * trial.device_seconds,
            at=at.isoformat(sep=" ", timespec="microseconds"),
        )


def _costs(cell: Full, objective: Objective) -> dict[str, float]:
    """The time of a cell, and what else was minimised, in :data:`UNITS`."""
    time = cell.median_ns / 1e6
    if objective == "time" or cell.energy is None:
        return {"time": time}
    energy = cell.energy.millijoules
    return {"time": time, objective: energy if objective == "energy" else energy * time}


def _means(costs: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """The weighted geometric mean over shapes of each cost that all have."""
    common = [name for name in costs[0] if all(name in each for each in costs)]
    return {name: geometric_mean([each[name] for each in costs], weights) for name in common}


def _state(outcome: Measured | Rejected) -> str:
    """A word of T4's ``invalidity``; a shape outside a constraint makes it ``constraints``."""
    if isinstance(outcome, Measured):
        return "correct" if outcome.general else "constraints"
    if outcome.code in _CONSTRAINTS:
        return "constraints"
    if outcome.code in _TIMEOUT:
        return "timeout"
    if outcome.stage is Stage.COMPILE:
        return "compile"
    return "correctness" if outcome.stage in _WRONG else "runtime"
