"""The verdict on a run in words: what its outcome means, and what it does not."""

from tuner.experiment.objective import COSTS, Objective
from tuner.printable import counted
from tuner.results.result import Cell, Result
from tuner.results.statistics import MARGIN, Comparison


def verdict_text(result: Result) -> str:
    """A few sentences."""
    return " ".join(filter(None, (outcome_text(result), objective_text(result.objective))))


def objective_text(objective: Objective) -> str:
    """What speedups are where not time alone is minimised; empty where it is."""
    if objective == "time":
        return ""
    return (
        f"Objective: {objective}. A speedup is the baseline's {COSTS[objective]} per launch ÷ the "
        'configuration\'s; "faster" means that it is lower.'
    )


def outcome_text(result: Result) -> str:
    """What the outcome means."""
    if why := result.baseline_rejected:
        return f"The baseline cannot be used: {why.detail}."
    match result.outcome:
        case "unfinished":
            return _unfinished(result)
        case "nothing_valid":
            return "No configuration was valid."
        case "improved":
            return _improved(result)
        case "no_gain":
            best = f" The best: {_judged(result.comparison)}" if result.comparison else ""
            return (
                "No configuration is faster than the baseline with certainty."
                f"{best}{_held_out_alone(result)}"
            )


def is_faster_overall(result: Result) -> bool:
    """Whether one configuration is faster with certainty, as the mean over all tune shapes."""
    found = result.comparison
    return bool(result.general and found and found.verdict == "faster")


def faster_shapes(result: Result) -> list[str]:
    """The tune shapes on which some configuration is faster with certainty."""
    return [
        result.shapes[best.cell.shape].label
        for best in result.specialised
        if best and _is_faster(best.cell)
    ]


def _unfinished(result: Result) -> str:
    """What is known so far, and what is not."""
    found = result.comparison
    if found is None:
        best = f" Best of the search so far: {result.speedup:.2f}×." if result.speedup else ""
        return f"The run has not ended, and nothing is confirmed.{best}"
    left = [
        result.shapes[cell.shape].label for cell in result.general_cells if cell.comparison is None
    ]
    missing = f" Not confirmed: {'; '.join(left)}." if left else ""
    return f"The run has not ended, so verdicts may change. So far: {_judged(found)}{missing}"


def _improved(result: Result) -> str:
    found = result.comparison
    if found and is_faster_overall(result):
        count = sum(not shape.held_out for shape in result.shapes)
        shapes = f"geometric mean over {count} tune shapes, " if count > 1 else ""
        return (
            f"{found} faster than the baseline with one configuration: {shapes}"
            f"{counted(found.processes, 'fresh process', 'fresh processes')}."
        )
    over_all = f" Over all tune shapes: {_judged(found)}" if result.general and found else ""
    return (
        f"Faster than the baseline with certainty on {'; '.join(faster_shapes(result))}.{over_all}"
    )


def _judged(found: Comparison) -> str:
    match found.verdict:
        case "same":
            return f"{found}, the same as the baseline within the noise."
        case "faster" | "slower":
            return f"{found}, {found.verdict}."
        case "unclear":
            return f"{found}, unclear: {_why_unclear(found)}."


def _why_unclear(found: Comparison) -> str:
    if found.low is None or found.high is None:
        return "the times scatter too much for an interval; rerun on an idle device"
    if found.low > 1 or found.high < 1:
        return f"the difference is below {MARGIN:.0%}"
    return "the interval does not exclude 1×; rerun on an idle device"


def _held_out_alone(result: Result) -> str:
    """Why a run without gain shows a held-out shape as faster; empty if it does not."""
    held_out = [cell for cell in result.general_cells if result.shapes[cell.shape].held_out]
    faster = [result.shapes[cell.shape].label for cell in held_out if _is_faster(cell)]
    if not faster:
        return ""
    return (
        f" Faster on {'; '.join(faster)} is no gain: a held-out shape only judges what was found "
        "on the tune shapes. Make it a tune shape if it matters."
    )


def _is_faster(cell: Cell) -> bool:
    return cell.comparison is not None and cell.comparison.verdict == "faster"
