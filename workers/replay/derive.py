"""What a recording tells of one kernel: captured launches replayed and probed, types put together.

Types come from the kernel's name in the binary where C++ wrote it, else from probes, else from how
captured bytes look.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from tuner.csource.kernels import signatures
from tuner.csource.mangling import demangled
from tuner.drafts.captured import CapturedKernel, CapturedShape, Memory
from tuner.drafts.guesses import Guess
from tuner.errors import SpecError
from tuner.experiment.model import ITEM_BYTES
from workers.interposer.recording import (
    Launch,
    RecordedKernel,
    Recording,
    read_buffer,
    read_image,
)
from workers.replay.port import Replay, ReplayFailed, ReplayLaunch
from workers.replay.probe import Probe, Region, regions
from workers.replay.types import looks_like, nan_type, result_type

_POINTER = 8
_SMALL_INTEGER = 1 << 26
_FLOAT_RANGE = (1e-12, 1e12)


Open = Callable[[ReplayLaunch, bytes, Sequence[bytes]], Replay]
"""Opens a replay of a launch, with the image of its kernel and the contents of its buffers."""


def derive(
    folder: Path,
    recording: Recording,
    kernel: int,
    open_replay: Open | None,
    tell: Callable[[str], None] = lambda _: None,
) -> CapturedKernel:
    """Put together what the capture in ``folder`` tells of a kernel.

    Args:
        folder: the capture directory.
        recording: its content.
        kernel: the kernel's index in it.
        open_replay: opens replays on a device; ``None``: only what changed is known.
        tell: is told what is being replayed.

    Raises:
        SpecError: a file of the capture is damaged, or no launch of the kernel was captured.
    """
    recorded = recording.kernels[kernel]
    launches = captured_launches(recording, kernel)
    if not any(launch.captured for launch in launches):
        raise SpecError(f"{folder}: no launch of {recorded.name} was captured; capture it again")
    image = read_image(folder, recorded.image) if recorded.image else None
    types, pointers = _named_types(recorded)
    pointers |= {p.parameter for one in launches for p in one.pointers} - set(
        _nested(recorded, launches)
    )
    shapes = []
    for number, launch in enumerate(launches, 1):
        able = open_replay if image else None
        if launch.captured and able:
            tell(f"replaying shape {number} of {len(launches)}")
        memory, outcome = _probed(folder, recorded, launch, image or b"", able, types)
        raw = enumerate(bytes.fromhex(argument) for argument in launch.arguments)
        shapes.append(
            CapturedShape(
                count=launch.eager + launch.in_graphs,
                grid=launch.grid,
                block=launch.block,
                shared_bytes=launch.shared_bytes,
                cooperative=launch.cooperative,
                cluster=launch.cluster,
                scalars={index: value for index, value in raw if index not in pointers},
                memory={index: one for index, one in memory.items() if index in pointers},
                replay=outcome,
            )
        )
    return CapturedKernel(
        symbol=recorded.name,
        sizes=tuple(parameter.size for parameter in recorded.parameters),
        types=types | _scalar_types(shapes[0], types),
        pointers=frozenset(pointers),
        shapes=tuple(shapes),
        unsupported=tuple(_unsupported(recorded, launches)),
    )


def contents(folder: Path, launch: Launch, parameter: int, size: int, *, after: bool) -> bytes:
    """The first ``size`` bytes behind a pointer parameter before or after a captured launch."""
    pointer = next(p for p in launch.pointers if p.parameter == parameter)
    buffer = launch.buffers[pointer.buffer]
    held = read_buffer(folder, buffer, buffer.after if after else buffer.before)
    return held[pointer.offset : pointer.offset + size]


def captured_launches(recording: Recording, kernel: int) -> list[Launch]:
    """The launches of a kernel in the order of :attr:`CapturedKernel.shapes`."""
    launches = [launch for launch in recording.launches if launch.kernel == kernel]
    return sorted(launches, key=lambda launch: launch.eager + launch.in_graphs, reverse=True)


def _probed(
    folder: Path,
    kernel: RecordedKernel,
    launch: Launch,
    image: bytes,
    open_replay: Open | None,
    types: dict[int, Guess],
) -> tuple[dict[int, Memory], str]:
    """The memory of a launch by parameter, and how its replay compared; adds to ``types``."""
    if not launch.captured:
        return {}, "none"
    before = [read_buffer(folder, buffer, buffer.before) for buffer in launch.buffers]
    after = [read_buffer(folder, buffer, buffer.after) for buffer in launch.buffers]
    addresses = [buffer.address for buffer in launch.buffers]
    found = regions(launch.pointers, [len(contents) for contents in before])
    if open_replay is None:
        memory = _seen(found, before, after, addresses)
        _add_types(types, None, found, memory, before, after)
        return memory, "none"
    replayed = ReplayLaunch(
        symbol=kernel.name,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        cooperative=launch.cooperative,
        cluster=launch.cluster or (1, 1, 1),
        parameters=launch.arguments,
        pointers=launch.pointers,
        addresses=tuple(addresses),
    )
    with closing(open_replay(replayed, image, before)) as replay:
        try:
            probe = Probe(replay, before, after)
        except ReplayFailed as failure:
            memory = _seen(found, before, after, addresses)
            _add_types(types, None, found, memory, before, after)
            return memory, f"failed: {failure}"
        memory = probe.memory(found, addresses)
        _add_types(types, probe, found, memory, before, after)
        return memory, probe.outcome


def _seen(
    found: Sequence[Region],
    before: Sequence[bytes],
    after: Sequence[bytes],
    addresses: Sequence[int],
) -> dict[int, Memory]:
    """What is known without a replay: what changed; the rest may be read to the end."""
    told = {}
    for region in found:
        old = np.frombuffer(before[region.buffer][region.start : region.end], np.uint8)
        new = np.frombuffer(after[region.buffer][region.start : region.end], np.uint8)
        places = np.flatnonzero(old != new)
        written = (int(places[0]), int(places[-1]) + 1) if places.size else None
        memory = Memory(
            read=None if written else (0, region.end - region.start),
            written=written and (0, written[1]),
            dense=True,
            fault=False,
            address=addresses[region.buffer] + region.start,
            replayed=False,
        )
        told.update(dict.fromkeys(region.parameters, memory))
    return told


def _add_types(
    types: dict[int, Guess],
    probe: Probe | None,
    found: Sequence[Region],
    memory: dict[int, Memory],
    before: Sequence[bytes],
    after: Sequence[bytes],
) -> None:
    """Add the element types of regions whose parameters have none; inputs first."""
    inputs: list[str] = []
    for region in sorted(found, key=lambda one: memory[one.parameters[0]].read is None):
        known = [types[p] for p in region.parameters if p in types]
        touched = memory[region.parameters[0]]
        if not known and touched.bytes:
            end = region.start + touched.bytes
            if touched.read:
                data = np.frombuffer(before[region.buffer][region.start : end], np.uint8)
                spread = nan_type(probe, region, data[: touched.read[1]]) if probe else None
                known = [spread or looks_like(data)]
            else:
                data = np.frombuffer(after[region.buffer][region.start : end], np.uint8)
                known = [result_type(inputs, data)]
        if known and touched.read:
            inputs.append(known[0].text)
        types.update({p: known[0] for p in region.parameters if known and p not in types})


def _named_types(kernel: RecordedKernel) -> tuple[dict[int, Guess], set[int]]:
    """Element types by parameter, and the pointers, from the kernel's mangled name."""
    parameters = demangled(kernel.name).parameters
    if parameters is None or len(parameters) != len(kernel.parameters):
        return {}, set()
    declared = ", ".join(f"{text} p{index}" for index, text in enumerate(parameters))
    read = signatures(f"__global__ void k({declared});", "cuda")
    if len(read) != 1 or len(read[0].parameters) != len(parameters):
        return {}, set()
    found, pointers = {}, set()
    for index, (parameter, recorded) in enumerate(
        zip(read[0].parameters, kernel.parameters, strict=True)
    ):
        if parameter.pointer and recorded.size == _POINTER:
            pointers.add(index)
        size = _POINTER if parameter.pointer else ITEM_BYTES.get(parameter.dtype or "")
        if parameter.dtype and size == recorded.size:
            reason = f"the kernel's name in the binary: {parameters[index]}"
            found[index] = Guess(text=parameter.dtype, why=reason, confidence="high")
    return found, pointers


def _scalar_types(shape: CapturedShape, types: dict[int, Guess]) -> dict[int, Guess]:
    """Types of scalars by their size and value, where nothing else tells them."""
    found = {}
    for index, raw in shape.scalars.items():
        if index in types or len(raw) not in (1, 2, 4, 8):
            continue
        found[index] = Guess(text=_scalar_type(raw), why="its size and value", confidence="medium")
    return found


def _scalar_type(raw: bytes) -> str:
    integer = int.from_bytes(raw, "little", signed=True)
    if len(raw) == 1:
        return "bool" if integer in (0, 1) else "uint8"
    if len(raw) > 2 and abs(integer) >= _SMALL_INTEGER:
        number = abs(float(np.frombuffer(raw, f"f{len(raw)}")[0]))
        if _FLOAT_RANGE[0] <= number <= _FLOAT_RANGE[1]:
            return f"float{8 * len(raw)}"
    return f"int{8 * len(raw)}"


def _unsupported(kernel: RecordedKernel, launches: Sequence[Launch]) -> list[str]:
    told, nested = [], _nested(kernel, launches)
    if kernel.image is None:
        told.append("the application loaded its module in a way that was not seen: no binary")
    told += [f"parameter {index} is a struct that holds pointers" for index in nested]
    told += list(dict.fromkeys(note for launch in launches for note in launch.notes))
    return told


def _nested(kernel: RecordedKernel, launches: Sequence[Launch]) -> list[int]:
    """The parameters that are structs with pointers in them."""
    holding = {p.parameter for one in launches for p in one.pointers}
    return [index for index in sorted(holding) if kernel.parameters[index].size != _POINTER]
