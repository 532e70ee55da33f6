"""Usage against limits, ``u(θ;h) ⪯ r(h)``: which launches a device refuses, and why.

Before compilation only the launch geometry is known; afterwards the compiler's report too.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.plan import Binary, CellPlan, KernelStep, Plan, Usage
from tuner.space.occupancy import registers_per_block
from tuner.space.requirements import AXES, launch_limits
from tuner.trial import Code, Rejected, Stage


def over_limit(plan: Plan, device: Device, binaries: Sequence[Binary] = ()) -> Rejected | None:
    """The first limit of ``device`` that a launch of ``plan`` exceeds, if any.

    Args:
        plan: a lowered configuration, or the baseline.
        device: the limits.
        binaries: the compiled builds in the order of ``plan.builds``; none before compilation, when
            registers and static shared memory are unknown.

    Returns:
        A rejection at stage ``limits`` that names the shape's index, or ``None``.
    """
    for index, cell in enumerate(plan.cells):
        if not isinstance(cell, CellPlan):
            continue
        usages = dict(binaries[cell.build].usage) if binaries else {}
        sizes = dict(binaries[cell.build].variable_bytes) if binaries else {}
        found = [_variable_excess(name, size, sizes.get(name)) for name, size in cell.variables]
        for step in cell.steps:
            if not isinstance(step, KernelStep):
                continue
            excess = launch_excess(step, device)
            if excess is None and step.entry in usages:
                usage = usages[step.entry]
                excess = usage_excess(step, usage, device) or _argument_mismatch(step, usage)
            found.append(excess)
        if first := next(filter(None, found), None):
            code, detail = first
            return Rejected(stage=Stage.LIMITS, code=code, detail=detail, shape=index)
    return None


def _variable_excess(name: str, size: int, room: int | None) -> tuple[Code, str] | None:
    """Whether more bytes are copied to a module's variable than it holds."""
    if room is None or size <= room:
        return None
    return Code.LAUNCH_FAILED, f"{name} has {room} bytes, but its constant argument has {size}"


def _argument_mismatch(step: KernelStep, usage: Usage) -> tuple[Code, str] | None:
    """A launch whose arguments are not the kernel's parameters: drivers would read beyond them."""
    taken, given = usage.parameter_bytes, step.argument_bytes
    if taken is None or not given or taken == given:
        return None
    if len(taken) != len(given):
        names = ", ".join(step.arguments)
        detail = f"{step.entry} takes {len(taken)} parameters, but is passed {len(given)}: {names}"
        return Code.LAUNCH_FAILED, detail
    name, size, passed = next(
        found for found in zip(step.arguments, taken, given, strict=True) if found[1] != found[2]
    )
    detail = f"{step.entry} takes {size} bytes for {name}, but is passed {passed}"
    return Code.LAUNCH_FAILED, detail


def within_limits(
    plan: Plan, device: Device, compiled: tuple[Binary, ...] | Rejected
) -> tuple[Binary, ...] | Rejected:
    """The compiled binaries, or why ``plan`` cannot run: a compile error or a limit exceeded."""
    if isinstance(compiled, Rejected):
        return compiled
    return over_limit(plan, device, compiled) or compiled


@lru_cache(maxsize=1024)  # a trial is looked at before and after it is compiled
def launch_excess(step: KernelStep, device: Device) -> tuple[Code, str] | None:
    """The first limit of ``device`` that a launch's geometry exceeds."""
    for limit in launch_limits(device):
        sizes = limit.sizes(step)
        size = math.prod(sizes)
        if size > limit.most:
            shown = f"{'×'.join(map(str, sizes))} = {size}" if len(sizes) > 1 else size
            return limit.code, f"{shown} {limit.unit}; {device.name} allows {limit.most}"
    for axis, blocks, cluster in zip(AXES, step.grid, step.cluster, strict=True):
        if blocks % cluster:
            return (
                Code.GRID,
                f"{blocks} blocks along {axis} are no multiple of {cluster} in a cluster",
            )
    return None


def usage_excess(step: KernelStep, usage: Usage, device: Device) -> tuple[Code, str] | None:
    """The first limit that the launch exceeds by the compiler's report, as far as that goes."""
    threads = math.prod(step.block)
    if usage.max_threads_per_block is not None and threads > usage.max_threads_per_block:
        return Code.THREADS, (
            f"a block of {threads} threads; this kernel was compiled for at most "
            f"{usage.max_threads_per_block} (its launch bounds or its use of registers)"
        )
    if usage.static_shared_bytes is not None:
        total = usage.static_shared_bytes + step.shared_bytes
        if total > device.max_shared_bytes_per_block:
            return Code.SHARED_MEMORY, (
                f"{usage.static_shared_bytes} bytes of static and {step.shared_bytes} of dynamic "
                f"shared memory; {device.name} allows {device.max_shared_bytes_per_block} per block"
            )
    backend = traits_of(device.backend)
    if usage.registers is not None and backend.allocation is not None:
        needed = registers_per_block(threads, usage.registers, device)
        if needed > device.max_registers_per_block:
            return Code.REGISTERS, (
                f"{threads} threads of {usage.registers} registers take {needed}; {device.name} "
                f"has {device.max_registers_per_block} per block: fewer threads, or "
                f"{backend.register_cap_flag}"
            )
    return None
