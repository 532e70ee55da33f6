"""What is wrong with a candidate though every answer it gives may be right.

Judged from what the compiler says of it, before it is launched.
"""

from tuner.engine.fleet import Candidate
from tuner.plan import CellPlan, KernelStep
from tuner.trial import Code, Rejected, Stage


def binary_rejection(candidate: Candidate, baseline: Candidate) -> Rejected | None:
    """The first defect that the baseline itself has not."""
    return _reaching(candidate, baseline) or _undefined_read(candidate, baseline)


def _reaching(candidate: Candidate, baseline: Candidate) -> Rejected | None:
    """The refusal of code that may finish late, tell when it is timed, or speak to people."""
    allowed = {what for binary in baseline.binaries for what in binary.reaches}
    for binary in candidate.binaries:
        for what in binary.reaches:
            if what not in allowed:
                detail = f"the compiled code uses {what}, which the kernel as it was does not"
                return Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail=detail)
    return None


def _undefined_read(candidate: Candidate, baseline: Candidate) -> Rejected | None:
    """The refusal of a kernel that reads a buffer past coherence while it writes it.

    Such a read may return what was there before the launch, after it, or a mixture. A buffer that
    the baseline itself treats so is let pass.
    """
    allowed = {name for _, _, names in _raced(baseline) for name in names}
    for shape, entry, names in _raced(candidate):
        if refused := sorted(names - allowed):
            detail = (
                f"{entry} reads {', '.join(refused)} through the non-coherent path (__ldg or "
                "const __restrict__) while it writes it: undefined, though it may pass today"
            )
            return Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail=detail, shape=shape)
    return None


def _raced(candidate: Candidate) -> list[tuple[int, str, frozenset[str]]]:
    """Shape, entry and buffers of each such launch; one buffer may be given as two parameters."""
    found = []
    for shape, cell in enumerate(candidate.plan.cells):
        if not isinstance(cell, CellPlan):
            continue
        usages = dict(candidate.binaries[cell.build].usage)
        for step in cell.steps:
            if isinstance(step, KernelStep) and step.entry in usages:
                usage, names = usages[step.entry], dict(enumerate(step.arguments))
                read = {names.get(index, "") for index in usage.noncoherent}
                written = {names.get(index, "") for index in usage.written}
                found.append((shape, step.entry, frozenset(read & written) - {""}))
    return found
