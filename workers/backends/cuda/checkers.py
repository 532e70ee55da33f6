"""compute-sanitizer: its tools, its reports, and the launch that it watches."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tuner.device import Device
from tuner.experiment.arguments import item_bytes
from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep, Step
from workers.backends.cuda import installation
from workers.backends.cuda.attributes import launcher
from workers.backends.cuda.driver import TO_DEVICE, Cuda, import_cuda, select
from workers.checkers.job import Job
from workers.checkers.tool import MAX_PRINTED, Tool, described, lacks_nothing
from workers.devices.port import StagedBuffer, StagedValue

MISSING = "compute-sanitizer is not installed: it comes with the CUDA toolkit"

_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: .*?\((\d+) errors?)")
_NO_FINDING = re.compile(r"^(?:COMPUTE-SANITIZER|\s|$|.*SUMMARY|.*Error: process didn't terminate)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")


def lacks_shared_memory(binary: Binary, steps: Sequence[Step]) -> str:
    """Without shared memory there is no race that racecheck sees."""
    launches = [step for step in steps if isinstance(step, KernelStep)]
    given = any(step.shared_bytes or math.prod(step.cluster) > 1 for step in launches)
    return "" if binary.shares or given else "no shared memory"


def lacks_barriers(binary: Binary, steps: Sequence[Step]) -> str:  # noqa: ARG001 (one signature)
    """Synccheck sees barriers and warp synchronisation alone."""
    return "" if binary.synchronises else "no barrier, no warp synchronisation"


_TOOLS: Mapping[str, Callable[[Binary, Sequence[Step]], str]] = {
    "memcheck": lacks_nothing,
    "racecheck": lacks_shared_memory,
    "initcheck": lacks_nothing,
    "synccheck": lacks_barriers,
}


def compute_sanitizer(device: Device, log: Path) -> tuple[Tool, ...]:  # noqa: ARG001 (one signature)
    """The tools of compute-sanitizer, if it is installed; each logs to ``log`` with its name."""
    program = installation.program("compute-sanitizer")
    if program is None:
        return ()
    fixed = (
        "--print-limit",
        str(MAX_PRINTED),
        "--report-api-errors",
        "no",
        "--launch-timeout",
        "60",
    )
    return tuple(
        Tool(
            name=name,
            command=(program, "--tool", name, *fixed, "--log-file", f"{log}.{name}"),
            log=Path(f"{log}.{name}"),
            most_bytes=8 << 20,
            read=read_compute_sanitizer,
            together=True,
            lacks=lacks,
        )
        for name, lacks in _TOOLS.items()
    )


def read_compute_sanitizer(log: str) -> tuple[str, ...] | None:
    """Kinds of errors with their number and where the first of each is; warnings are left out."""
    found = list(_SUMMARY.finditer(log))
    if not found:
        return None
    if not any(int(count) for summary in found for count in summary.groups() if count):
        return ()
    lines = [line.removeprefix("=========").removeprefix(" ") for line in log.splitlines()]
    places: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _NO_FINDING.match(line) or line.startswith("Warning"):
            continue
        kind = _ADDRESS.sub("…", line.strip())
        counts[kind] += 1
        places.setdefault(kind, following.strip() if following.startswith("    ") else "")
    return tuple(described(kind, counts[kind], places[kind]) for kind in counts) or ("errors",)


def open_under_checker(index: int) -> Callable[[Job], None]:
    """Open a device; returns what loads the very code that was benched, and launches it."""
    cuda = import_cuda()
    select(cuda, index)
    return partial(_launch, cuda)


def _launch(cuda: Cuda, job: Job) -> None:
    module, symbols = cuda.driver.moduleLoadData(Path(job.code).read_bytes()), dict(job.symbols)
    buffers = [one for one in job.arguments if isinstance(one, StagedBuffer)]
    sizes = {buffer.name: buffer.size for buffer in buffers}
    sizes |= {s.name: max(1, s.elements) * item_bytes(s.dtype) for s in job.cell.scratch}
    addresses = {name: cuda.runtime.malloc(size) for name, size in sizes.items()}
    for buffer in buffers:
        if buffer.contents is None:
            continue
        where = addresses[buffer.name]
        if buffer.kind == "constant":
            name = buffer.symbol or buffer.name
            where = cuda.driver.moduleGetGlobal(module, symbols.get(name, name))
        data = np.fromfile(buffer.contents, np.uint8)
        cuda.runtime.memcpy(where, data.ctypes.data, data.nbytes, TO_DEVICE)
    values = {name: address.to_bytes(8, "little") for name, address in addresses.items()}
    values |= {one.name: one.packed for one in job.arguments if isinstance(one, StagedValue)}
    _run(cuda, module, job.cell.serialised, symbols, values, sizes)
    cuda.runtime.deviceSynchronize()


def _run(
    cuda: Cuda,
    module: int,
    cell: CellPlan,
    symbols: dict[str, str],
    values: dict[str, bytes],
    sizes: dict[str, int],
) -> None:
    for step in cell.steps:
        if isinstance(step, MemsetStep):
            size = sizes[step.argument]
            place = int.from_bytes(values[step.argument], "little")
            cuda.runtime.memset(place, step.byte, size)
            continue
        assert isinstance(step, KernelStep)
        function = cuda.function(module, symbols[step.entry], step.shared_bytes)
        held = [np.frombuffer(values[name], np.uint8) for name in step.arguments]
        table = np.array([one.ctypes.data for one in held] or [0], np.uint64)
        launcher(cuda.driver, function, step, 0)(table.ctypes.data)
        cuda.runtime.deviceSynchronize()
