"""Oclgrind: its command, its report, and the launch that it watches."""

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.device import Device
from tuner.plan import Binary
from workers.backends.opencl.compiler import OpenCLCompiler
from workers.backends.opencl.device import OpenCLDevice
from workers.backends.opencl.driver import OpenCL
from workers.backends.opencl.platforms import opencl_devices
from workers.backends.opencl.regions import Bytes, Region
from workers.checkers.job import Job
from workers.checkers.tool import MAX_PRINTED, Tool, described

MISSING = "oclgrind is not installed: `apt install oclgrind`, or build github.com/jrprice/Oclgrind"

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_GAVE_UP = "OCLGRIND FATAL ERROR"
_AT = re.compile(r"At line (\d+)")


def oclgrind(device: Device, log: Path) -> tuple[Tool, ...]:
    """Oclgrind for a CPU device, where this machine has it."""
    program = shutil.which("oclgrind")
    if program is None or not device.is_cpu:
        return ()
    return (
        Tool(
            name="oclgrind",
            command=(
                *(program, "--data-races", "--uninitialized", "--max-errors", str(MAX_PRINTED)),
                *("--max-wgsize", str(device.max_threads_per_block)),
                *("--local-mem-size", str(device.max_shared_bytes_per_block)),
                *("--log", f"{log}.oclgrind"),
            ),
            log=Path(f"{log}.oclgrind"),
            most_bytes=512 << 10,
            read=read_oclgrind,
        ),
    )


def read_oclgrind(log: str) -> tuple[str, ...] | None:
    """Kinds of errors with their number and the line of the first of each.

    ``None`` where it found nothing before it met what it cannot interpret: no fault of the kernel.
    """
    places: dict[str, str] = {}
    counts: Counter[str] = Counter()
    kind = ""
    lines = iter(log.splitlines())
    gave_up = False
    for line in lines:
        if line.startswith(_GAVE_UP):
            gave_up = True
            next(lines, "")  # its reason, on a line of its own
        elif line and not line[0].isspace() and not line.startswith("Oclgrind: "):
            kind = re.sub(
                r"\s+at (?:global|local|private|constant) memory address …|…",
                "",
                _ADDRESS.sub("…", line),
            ).strip()
            counts[kind] += 1
        elif kind and kind not in places and (at := _AT.search(line)):
            places[kind] = f"at line {at[1]}"
    if gave_up and not counts:
        return None
    return tuple(described(kind, counts[kind], places.get(kind, "")) for kind in counts)


class _Exact:
    """An OpenCL buffer without guards."""

    def __init__(self, opencl: OpenCL, size: int) -> None:
        self._cl, self._queue = opencl.cl, opencl.queue
        self.buffer = self._cl.Buffer(opencl.context, self._cl.mem_flags.READ_WRITE, size)

    def write(self, contents: Bytes) -> None:
        self._cl.enqueue_copy(self._queue, self.buffer, contents)

    def mend(self) -> None:
        """There is nothing to mend."""

    def fill(self, byte: int) -> None:
        raise NotImplementedError

    def read(self) -> Bytes:
        raise NotImplementedError

    def broken(self) -> tuple[str, int] | None:
        raise NotImplementedError


_NO_PROMISES = tuple(f"-D{word}=" for word in ("restrict", "__restrict", "__restrict__"))


class _ExactDevice(OpenCLDevice):
    def region(
        self,
        size: int,
        align: int,  # noqa: ARG002 (as it comes)
        guard: Bytes,  # noqa: ARG002 (none here)
        **access: bool,  # noqa: ARG002 (the checker watches all)
    ) -> Region:
        """Memory without guards."""
        return _Exact(self.opencl, size)


def open_under_checker(index: int) -> Callable[[Job], None]:  # noqa: ARG001 (the checker has one)
    """Open the first device there is, which is the checker's.

    Returns what compiles from source, without ``restrict``, a mere promise, and launches: Oclgrind
    21.10 does not know what its own compiler makes of one where a function is inlined.
    """
    return partial(_launch, _ExactDevice(opencl_devices()[0], 0))


def _launch(device: _ExactDevice, job: Job) -> None:
    build = replace(job.build, options=(*job.build.options, *_NO_PROMISES))
    binary = OpenCLCompiler(device.opencl.handle).compile(build)
    if not isinstance(binary, Binary):
        raise SystemExit(f"does not compile for {device.device.name}: {binary.detail}")
    buffer_sets = device.stage(job.arguments, 1)
    device.bind(device.load([binary]), job.cell, buffer_sets).burst((0,))
