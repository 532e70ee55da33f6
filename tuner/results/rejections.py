"""Why trials failed, counted, and what a user can do about it."""

from collections.abc import Sequence

from tuner.journal.history import History
from tuner.results.result import Rejections
from tuner.trial import Code, Rejected

_WORDS = {
    Code.COMPILE_ERROR: "did not compile",
    Code.COMPILE_TIMEOUT: "took too long to compile",
    Code.COMPILER_CRASH: "crashed the compiler",
    Code.THREADS: "over the limit of threads per block",
    Code.GRID: "over the limit of blocks",
    Code.SHARED_MEMORY: "over the shared-memory limit",
    Code.REGISTERS: "over the register limit",
    Code.LAUNCH_FAILED: "could not be launched",
    Code.ILLEGAL_ADDRESS: "touched an illegal address",
    Code.TRAP: "trapped",
    Code.CRASH: "crashed",
    Code.HANG: "hung",
    Code.OUT_OF_MEMORY: "ran out of memory",
    Code.WRONG_RESULT: "wrong",
    Code.NOT_WRITTEN: "left outputs unwritten",
    Code.INPUT_OVERWRITTEN: "overwrote an input",
    Code.OUT_OF_BOUNDS: "wrote out of bounds",
    Code.DEFECT: "right only by luck",
    Code.IMPOSSIBLE_TIME: "impossibly fast",
    Code.SLOWER_AGAIN: "slower than when timed",
    Code.WORKER_LOST: "lost with the worker",
}

SHOWN = 4
"""Kinds of failure that are told one by one."""

_CONSTRAIN = "a constraint that excludes them, so that the search spends nothing on them"
_REPRODUCE = "`kernelwright trial` with the configuration below, to see it alone"

_REMEDIES = {
    Code.COMPILE_ERROR: "the template's source: the message is below",
    Code.COMPILE_TIMEOUT: "less unrolling",
    Code.COMPILER_CRASH: "less unrolling, or a simpler form of the source",
    Code.THREADS: _CONSTRAIN,
    Code.GRID: _CONSTRAIN,
    Code.SHARED_MEMORY: _CONSTRAIN,
    Code.REGISTERS: _CONSTRAIN,
    Code.LAUNCH_FAILED: _REPRODUCE,
    Code.ILLEGAL_ADDRESS: "the bounds of the template's accesses",
    Code.TRAP: _REPRODUCE,
    Code.CRASH: "the bounds of the template's accesses",
    Code.HANG: "the template's loops and barriers",
    Code.OUT_OF_MEMORY: "smaller shapes, less scratch memory, or less unrolling",
    Code.WRONG_RESULT: "the template at that shape (tails, synchronisation), or the tolerance",
    Code.NOT_WRITTEN: "a launch that covers every element",
    Code.INPUT_OVERWRITTEN: "declaring the argument inout, if that is meant",
    Code.OUT_OF_BOUNDS: "the bounds of the template's accesses",
    Code.DEFECT: "what the message below names: it is undefined, or a race",
    Code.IMPOSSIBLE_TIME: "the experiment's cost.bytes, if the message below names it",
    Code.SLOWER_AGAIN: "again on an idle machine: one that is busy may be why",
    Code.WORKER_LOST: "the worker's log: a machine may be out of memory",
}


def count_rejections(history: History) -> tuple[Rejections, ...]:
    """Rejected trials by stage, code and shape, the most frequent first.

    Finalists that failed while being confirmed or examined count too.
    """
    rejected = {
        number: trial.outcome
        for number, trial in history.trials.items()
        if isinstance(trial.outcome, Rejected)
    }
    refuted = history.refuted
    rejected.update((number, refuted[number]) for number in refuted if number in history.trials)
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
    """What to tell the user: all failures in one line with a remedy, then an example of each kind.

    Args:
        rejections: as counted, the most frequent first.
        trials: how many configurations were tried.
        labels: of the shapes.
    """
    if not rejections:
        return ()
    return (
        f"{_counted(rejections, trials, labels)}; try {_REMEDIES[rejections[0].code]}",
        *(
            f"  trial {group.trial} ({group.configuration}) {_WORDS[group.code]}"
            f"{_at(group, labels)}: {group.detail}"
            for group in rejections[:SHOWN]
        ),
    )


def rejected_in_short(history: History) -> str:
    """All failures, and why the first of the commonest kind was one; empty if there are none."""
    rejections = count_rejections(history)
    if not rejections:
        return ""
    shapes, first = history.experiment.shapes, rejections[0]
    labels = [str(binding) for binding in (*shapes.tune, *shapes.held_out)]
    counted = _counted(rejections, len(history.trials), labels)
    return f"{counted} (trial {first.trial}: {first.detail})"


def _counted(rejections: Sequence[Rejections], trials: int, labels: Sequence[str]) -> str:
    total = sum(group.count for group in rejections)
    parts = [f"{group.count} {_WORDS[group.code]}{_at(group, labels)}" for group in rejections]
    shown = parts[:SHOWN] + ([f"{len(parts) - SHOWN} more kinds"] if len(parts) > SHOWN else [])
    return f"{total} of {trials} rejected: {', '.join(shown)}"


def _at(group: Rejections, labels: Sequence[str]) -> str:
    known = group.shape is not None and 0 <= group.shape < len(labels)
    return f" at {labels[group.shape]}" if known and group.shape is not None else ""
