"""All trials as rows: ``results.jsonl`` and ``results.csv``; and ``status.json``."""

import csv
import io
import json
from collections.abc import Callable, Iterator

from tuner.experiment.metrics import metric_values
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.journal.history import History
from tuner.results.result import Result
from tuner.results.summary import least_ns
from tuner.run_directory import RESULTS
from tuner.trial import Cell, CutShort, Full, Infeasible, Measured, Rejected


def results_jsonl(history: History) -> str:
    """One JSON object per trial: values, loss, and times per tune shape or the reason."""
    tune = history.experiment.shapes.tune
    shapes = [(binding, least_ns(history, binding)) for binding in tune]
    lines = []
    for trial in history.trials.values():
        row: dict[str, object] = {
            "trial": trial.number,
            "configuration": trial.configuration.as_dict(),
            "digest": trial.configuration.digest,
            "loss": history.loss(trial.number),
            "bench": trial.bench,
            "device_seconds": trial.device_seconds,
            "current": trial.current,
            "same_as": trial.same_as,
            "dependent": history.launches_dependently(trial.number),
        }
        match trial.outcome:
            case Measured(cells=cells):
                row["outcome"] = "measured"
                row["shapes"] = {
                    str(binding): _cell(history, binding, cell, least)
                    for (binding, least), cell in zip(shapes, cells, strict=True)
                }
            case Rejected(stage=stage, code=code, detail=detail, shape=shape):
                row["outcome"] = "rejected"
                row |= {"stage": stage, "code": code, "detail": detail, "shape": shape}
            case None:
                row["outcome"] = "abandoned" if trial.abandoned else "open"
        lines.append(json.dumps(row, allow_nan=False) + "\n")
    return "".join(lines)


def _cell(
    history: History, shape: ShapeBinding, cell: Cell, least_ns: float | None
) -> dict[str, object]:
    """A cell as JSON; one that was cut short has no ``median_ns``, since it may not be reported.

    ``of_copy`` is the time to copy the same bytes divided by the cell's.
    """
    match cell:
        case Full():
            found: dict[str, object] = {
                "median_ns": cell.median_ns,
                "mad_ns": cell.mad_ns,
                "samples": cell.samples,
                "baseline_ns": cell.baseline_ns,
            }
            if least_ns is not None:
                found["of_copy"] = least_ns / cell.median_ns
            if energy := cell.energy:
                found |= {"millijoules": energy.millijoules, "baseline_mj": energy.baseline_mj}
            if history.experiment.metrics:
                found["metrics"] = _values(history, shape, cell)
            return found
        case CutShort():
            return {"cut_short_at_ns": cell.median_ns, "samples": cell.samples}
        case Infeasible():
            return {"infeasible": cell.reason}


def _values(history: History, shape: ShapeBinding, cell: Full) -> dict[str, float | None]:
    millijoules = cell.energy.millijoules if cell.energy else None
    return metric_values(history.experiment, shape.symbols, cell.median_ns, millijoules)


def _columns(experiment: Experiment) -> tuple[str, ...]:
    """The columns of each shape."""
    energies = () if experiment.objective == "time" else ("mJ", "baseline mJ")
    return ("ns", "mad ns", "baseline ns", "speedup", *energies, *experiment.metrics)


def _figures(history: History, shape: ShapeBinding, cell: Cell | None) -> Iterator[float | str]:
    if not isinstance(cell, Full):
        yield from ("",) * len(_columns(history.experiment))
        return
    yield from (cell.median_ns, cell.mad_ns, cell.baseline_ns, 1 / cell.ratio)
    if cell.energy:
        yield from (cell.energy.millijoules, cell.energy.baseline_mj)
    for value in _values(history, shape, cell).values():
        yield "" if value is None else value


def results_csv(history: History) -> str:
    """One line per trial: number, outcome, loss, reason, launch, parameters, times by tune shape.

    Of each shape: the median time, its median absolute deviation, the baseline's time in the same
    process, the speedup, the energies where they are measured, and the spec's metrics; nothing
    where it was cut short. A ``dependent`` launch may begin before the launch ahead of it has
    ended.
    """
    template = history.experiment.template
    parameters = list(template.parameters) if template else []
    tune = history.experiment.shapes.tune
    columns = _columns(history.experiment)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("trial", "outcome", "loss", "code", "launch"),
            *parameters,
            *(f"{binding} {column}" for binding in tune for column in columns),
        ]
    )
    for trial in history.trials.values():
        values = trial.configuration.as_dict()
        outcome = trial.outcome
        cells = outcome.cells if isinstance(outcome, Measured) else [None] * len(tune)
        writer.writerow(
            [
                trial.number,
                outcome.kind if outcome else "open",
                history.loss(trial.number) if outcome else "",
                outcome.code if isinstance(outcome, Rejected) else "",
                "dependent" if history.launches_dependently(trial.number) else "plain",
                *(values.get(name, "") for name in parameters),
                *(
                    value
                    for binding, cell in zip(tune, cells, strict=True)
                    for value in _figures(history, binding, cell)
                ),
            ]
        )
    return text.getvalue()


def status_json(result: Result, facts: int) -> str:
    """The contents of ``status.json``: the result so far, and the number of journal facts."""
    return json.dumps({**result.to_json(), "facts": facts}, indent=2, allow_nan=False) + "\n"


TABLES: dict[str, Callable[[History], str]] = {
    RESULTS: results_jsonl,
    "results.csv": results_csv,
}
"""The tables of all trials in the directory of a search, and what makes each."""
