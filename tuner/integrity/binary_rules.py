"""Binary rules: what compiled code may not contain, however correct its results.

Checked on what the compiler reports, before the first launch. What the baseline's code contains is
allowed.
"""

from tuner.candidate import Candidate
from tuner.experiment.model import Template
from tuner.plan import CellPlan, KernelStep
from tuner.trial import Code, Rejected, Stage

_DEPENDENCE = "griddepcontrol"
"""What compilers report of code that waits for the launch ahead of it, or lets the next begin."""


def binary_rejection(
    candidate: Candidate, baseline: Candidate, template: Template | None = None
) -> Rejected | None:
    """The rejection for the first broken rule, or ``None``.

    A ``template`` that may launch dependently may wait in every configuration: it does nothing in
    an ordinary launch.
    """
    dependent = template is not None and template.dependent
    return _forbidden_feature(candidate, baseline, dependent=dependent) or _undefined_read(
        candidate, baseline
    )


def _forbidden_feature(
    candidate: Candidate, baseline: Candidate, *, dependent: bool
) -> Rejected | None:
    """Code that overlaps other launches undeclared, reads a clock, or prints."""
    allowed = {what for binary in baseline.binaries for what in binary.reaches}
    if dependent or candidate.plan.dependent:
        allowed.add(_DEPENDENCE)
    for binary in candidate.binaries:
        for what in binary.reaches:
            if what not in allowed:
                detail = f"the compiled code uses {what}, which the kernel as it was does not"
                return Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail=detail)
    return None


def _undefined_read(candidate: Candidate, baseline: Candidate) -> Rejected | None:
    """A kernel that reads a buffer through the non-coherent path while it writes it.

    Such a read may return the value from before the launch, the new one, or a mixture.
    """
    allowed = {name for _, _, names in _incoherent(baseline) for name in names}
    for shape, entry, names in _incoherent(candidate):
        if refused := sorted(names - allowed):
            detail = (
                f"{entry} reads {', '.join(refused)} through the non-coherent path (__ldg or "
                "const __restrict__) while it writes it: undefined, though it may pass today"
            )
            return Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail=detail, shape=shape)
    return None


def _incoherent(candidate: Candidate) -> list[tuple[int, str, frozenset[str]]]:
    """Shape, entry and buffers both so read and written, for each launch.

    One buffer may be passed as two parameters.
    """
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
