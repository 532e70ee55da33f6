"""Counts of rejected trials by reason, with remedies."""

from collections.abc import Sequence
from dataclasses import replace

from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.history import History
from tuner.results.result import Rejections
from tuner.trial import Code, Rejected

WORDS = {
    Code.COMPILE_ERROR: "did not compile",
    Code.COMPILE_TIMEOUT: "took too long to compile",
    Code.COMPILER_CRASH: "crashed the compiler",
    Code.THREADS: "exceeded the threads-per-block limit",
    Code.GRID: "exceeded the grid limit",
    Code.SHARED_MEMORY: "exceeded the shared-memory limit",
    Code.REGISTERS: "exceeded the register limit",
    Code.LAUNCH_FAILED: "could not be launched",
    Code.ILLEGAL_ADDRESS: "accessed an illegal address",
    Code.TRAP: "trapped",
    Code.CRASH: "crashed",
    Code.HANG: "hung",
    Code.OUT_OF_MEMORY: "ran out of memory",
    Code.WRONG_RESULT: "gave wrong results",
    Code.DISAGREES: "disagreed with the reference",
    Code.ROUNDING: "rounded more than the tolerance allows",
    Code.SPEC_ERROR: "could not be checked for an error in the spec",
    Code.NOT_FINITE: "gave results that are not finite",
    Code.NOT_DETERMINISTIC: "gave other results on the same inputs",
    Code.NOT_WRITTEN: "left outputs unwritten",
    Code.INPUT_OVERWRITTEN: "overwrote an input",
    Code.OUT_OF_BOUNDS: "wrote out of bounds",
    Code.DEFECT: "relied on a race or undefined behaviour",
    Code.IMPOSSIBLE_TIME: "reported impossible times",
    Code.SLOWER_AGAIN: "slower when timed again",
    Code.WORKER_LOST: "lost with a worker",
}

SHOWN = 4
"""Kinds of failure that are listed separately."""

_CONSTRAIN = "add a constraint that excludes them, so that the search skips them"
_BOUNDS = "check the bounds of the template's accesses"

REMEDIES = {
    Code.COMPILE_ERROR: "fix what the compiler names in the template's source",
    Code.COMPILE_TIMEOUT: "unroll less",
    Code.COMPILER_CRASH: "unroll less, or simplify the source",
    Code.THREADS: _CONSTRAIN,
    Code.GRID: _CONSTRAIN,
    Code.SHARED_MEMORY: _CONSTRAIN,
    Code.REGISTERS: _CONSTRAIN,
    Code.LAUNCH_FAILED: "check the template's grid, block and shared_bytes",
    Code.ILLEGAL_ADDRESS: _BOUNDS,
    Code.TRAP: "check the template's traps, and the bounds of its accesses",
    Code.CRASH: _BOUNDS,
    Code.HANG: "check the template's loops and barriers, or what makes it so much slower",
    Code.OUT_OF_MEMORY: "use smaller shapes or less scratch memory, or unroll less",
    Code.WRONG_RESULT: "check the template at that shape (tails, barriers), or the tolerance; if "
    "your application has no such values, give the inputs a `range` of those that occur",
    Code.DISAGREES: "correct the kernel, its reference or the tolerance",
    Code.ROUNDING: "widen the tolerance, or sum more accurately",
    Code.SPEC_ERROR: "correct the reference or the fill that the message names",
    Code.NOT_FINITE: "give the inputs a `range` of the numbers that occur",
    Code.NOT_DETERMINISTIC: "give the output a tolerance, or compare it unordered",
    Code.NOT_WRITTEN: "launch enough blocks to cover every element",
    Code.INPUT_OVERWRITTEN: "declare the argument inout if it is meant to be written",
    Code.OUT_OF_BOUNDS: _BOUNDS,
    Code.DEFECT: "fix the race or undefined behaviour that the message names",
    Code.IMPOSSIBLE_TIME: "check the experiment's cost.bytes if the message names it",
    Code.SLOWER_AGAIN: "rerun on an idle machine",
    Code.WORKER_LOST: "read the worker's log; the machine may be out of memory",
}


def count_rejections(history: History) -> tuple[Rejections, ...]:
    """Rejected trials by stage, code and shape, the most frequent first.

    Includes finalists that failed in confirmation or under a checker.
    """
    rejected = {
        number: trial.outcome
        for number, trial in history.trials.items()
        if isinstance(trial.outcome, Rejected)
    }
    failed_later = history.failed_later
    rejected.update(
        (number, failed_later[number]) for number in failed_later if number in history.trials
    )
    groups: dict[tuple[str, str, int], list[int]] = {}
    for number, why in sorted(rejected.items()):
        shape = -1 if why.shape is None else why.shape
        groups.setdefault((why.stage, why.code, shape), []).append(number)
    counted = [
        Rejections(
            stage=rejected[numbers[0]].stage,
            code=rejected[numbers[0]].code,
            shape=rejected[numbers[0]].shape,
            count=len(numbers),
            trial=numbers[0],
            configuration=history.trials[numbers[0]].configuration,
            detail=rejected[numbers[0]].detail,
        )
        for numbers in groups.values()
    ]
    return tuple(sorted(counted, key=lambda group: (-group.count, group.trial)))


def advise(rejections: Sequence[Rejections], trials: int, labels: Sequence[str]) -> tuple[str, ...]:
    """Lines for the user: counts with a hint, then an example of each kind.

    ``rejections`` has the most frequent first, ``trials`` counts all, ``labels`` name the shapes.
    """
    if not rejections:
        return ()
    return (
        _counted(rejections, trials, labels),
        f"  hint: {REMEDIES[rejections[0].code]}",
        *(
            f"  trial {group.trial} ({group.configuration}) {WORDS[group.code]}"
            f"{_at(group, labels)}: {group.detail}"
            for group in rejections[:SHOWN]
        ),
    )


def baseline_rejection(rejected: Rejected, experiment: Experiment) -> Rejected:
    """A rejection of the baseline, with the shape where it was seen, if any, and the remedy."""
    detail = rejected.detail
    if rejected.shape is not None:
        detail = f"{every_shape(experiment)[rejected.shape]}: {detail}"
    if rejected.code in (Code.DISAGREES, Code.ROUNDING):  # other details name their remedy
        detail = f"{detail}; {REMEDIES[rejected.code]}"
    return replace(rejected, detail=detail)


def rejections_line(history: History) -> str:
    """The counts, and an example of the most frequent kind; empty without rejections."""
    rejections = count_rejections(history)
    if not rejections:
        return ""
    shapes, first = history.experiment.shapes, rejections[0]
    labels = [str(binding) for binding in (*shapes.tune, *shapes.held_out)]
    counted = _counted(rejections, len(history.trials), labels)
    return f"{counted} (trial {first.trial}: {first.detail})"


def _counted(rejections: Sequence[Rejections], trials: int, labels: Sequence[str]) -> str:
    total = sum(group.count for group in rejections)
    parts = [f"{group.count} {WORDS[group.code]}{_at(group, labels)}" for group in rejections]
    shown = parts[:SHOWN] + ([f"{len(parts) - SHOWN} more kinds"] if len(parts) > SHOWN else [])
    return f"{total} of {trials} rejected: {', '.join(shown)}"


def _at(group: Rejections, labels: Sequence[str]) -> str:
    known = group.shape is not None and 0 <= group.shape < len(labels)
    return f" at {labels[group.shape]}" if known and group.shape is not None else ""
