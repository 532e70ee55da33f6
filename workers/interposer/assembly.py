"""Makes a capture directory of what an application's processes recorded."""

import fnmatch
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from shutil import rmtree

from tuner.errors import EnvironmentProblem, SpecError
from tuner.files import check_folder, make_folder
from workers.interposer.application import Ended
from workers.interposer.names import mangled_part
from workers.interposer.recording import (
    BUFFERS,
    FILE,
    IMAGES,
    RECORDING,
    Application,
    Attributes,
    Buffer,
    Image,
    Launch,
    Parameter,
    Pointer,
    RecordedDevice,
    RecordedKernel,
    Recording,
)
from workers.interposer.trace import BufferLine, CaptureLine, Counter, Trace

_CHUNK = 1 << 20
_DEVICE_LAUNCH = b"cudaLaunchDevice"
"""Part of the names of the functions by which a kernel launches another."""


@dataclass(frozen=True, slots=True)
class CaptureFolder:
    """A capture directory that is being made: ``raw`` is where processes record."""

    raw: Path
    part: Path
    final: Path

    def finish(self) -> None:
        """Give the directory its name."""
        rmtree(self.raw)
        try:
            self.part.rename(self.final)
        except OSError as error:
            raise EnvironmentProblem(
                f"{self.final}: cannot be created ({error.strerror}); choose another with -o"
            ) from error


@contextmanager
def capture_folder(final: Path) -> Iterator[CaptureFolder]:
    """A folder beside ``final``, readable by its owner only; removed unless it was finished.

    Raises:
        SpecError: ``final`` exists.
        EnvironmentProblem: the folder cannot be created.
    """
    if final.exists() or final.is_symlink():
        raise SpecError(f"{final} exists: name a new folder with -o")
    check_folder(final)
    parent = final.absolute().parent
    is_new = not parent.exists()
    make_folder(parent)
    part = final.absolute().with_name(f".{final.name[:100]}.{token_hex(8)}.part")
    raw = part / "raw"
    try:
        part.mkdir(mode=0o700)
        raw.mkdir(mode=0o700)
    except OSError as error:
        raise EnvironmentProblem(f"{part}: cannot be created ({error.strerror})") from error
    try:
        yield CaptureFolder(raw=raw, part=part, final=final)
    finally:
        rmtree(part, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def matching_kernels(wanted: str, trace: Trace) -> list[int]:
    """The ids of the kernels that ``--kernel`` names: part of the name, or a pattern."""
    return [
        number
        for number, kernel in trace.kernels.items()
        if mangled_part(wanted) in kernel.name or fnmatch.fnmatchcase(kernel.name, wanted)
    ]


def assemble(folder: CaptureFolder, trace: Trace, ended: Ended, wanted: str) -> Recording:
    """Write ``capture.json`` with its images and buffers; the content of one process.

    Raises:
        EnvironmentProblem: a file of the recording is missing, or cannot be written.
    """
    assert trace.device is not None
    numbers = matching_kernels(wanted, trace)
    images = _images(folder, trace)
    recording = Recording(
        format=1,
        application=Application(
            argv=ended.argv, directory=ended.directory, pid=trace.pid, exit_code=ended.exit_code
        ),
        device=RecordedDevice(
            name=trace.device.device,
            compute_capability=trace.device.compute_capability,
            driver=trace.device.driver,
        ),
        kernels=tuple(_kernel(trace, number, images.get(number)) for number in numbers),
        launches=tuple(_launches(folder, trace, numbers)),
    )
    _write(folder.part / FILE, RECORDING.dump_json(recording, indent=1))
    return recording


def device_launching(folder: Path, recording: Recording) -> list[str]:
    """The kernels whose image holds calls that launch kernels from the device."""
    return [
        kernel.name
        for kernel in recording.kernels
        if kernel.image and _DEVICE_LAUNCH in (folder / IMAGES / kernel.image.sha256).read_bytes()
    ]


def _kernel(trace: Trace, number: int, image: Image | None) -> RecordedKernel:
    line = trace.kernels[number]
    registers, static, dynamic, local, constant, threads = line.attributes
    return RecordedKernel(
        name=line.name,
        image=image,
        parameters=tuple(Parameter(offset=offset, size=size) for offset, size in line.parameters),
        attributes=Attributes(
            registers=registers,
            static_shared_bytes=static,
            max_dynamic_shared_bytes=dynamic,
            local_bytes=local,
            constant_bytes=constant,
            max_threads_per_block=threads,
        ),
    )


def _launches(folder: CaptureFolder, trace: Trace, numbers: Sequence[int]) -> Iterator[Launch]:
    for slot, shape in trace.shapes.items():
        counter = trace.counters.get(slot, Counter())
        if shape.of not in numbers or not counter.launches:
            continue
        plain = Launch(
            kernel=numbers.index(shape.of),
            grid=shape.grid,
            block=shape.block,
            shared_bytes=shape.shared_bytes,
            cooperative=shape.cooperative,
            cluster=shape.cluster if any(shape.cluster) else None,
            eager=counter.eager,
            in_graphs=counter.in_graphs,
            arguments=shape.arguments,
            captured=False,
            from_graph=False,
            pointers=(),
            buffers=(),
        )
        capture = trace.captures.get(slot)
        yield plain if capture is None else _captured(folder, plain, capture)


def _captured(folder: CaptureFolder, launch: Launch, capture: CaptureLine) -> Launch:
    notes = []
    if capture.inner_pointers:
        notes.append(f"{capture.inner_pointers} device pointers inside its memory")
    if capture.too_many_pointers:
        notes.append("more pointers in its arguments than are recorded")
    return replace(
        launch,
        arguments=capture.arguments,
        captured=True,
        from_graph=capture.from_graph,
        pointers=tuple(
            Pointer(parameter=parameter, at=at, buffer=buffer, offset=offset)
            for parameter, at, buffer, offset in capture.pointers
        ),
        buffers=tuple(_buffer(folder, line) for line in capture.buffers),
        notes=tuple(notes),
    )


def _buffer(folder: CaptureFolder, line: BufferLine) -> Buffer:
    before, after = (
        _store(folder.raw / name, folder.part / BUFFERS, line.size)
        for name in (line.before, line.after)
    )
    return Buffer(
        address=line.address,
        size=line.size,
        allocation_address=line.allocation_address,
        allocation_size=line.allocation_size,
        before=before,
        after=after,
        truncated=line.truncated,
    )


def _images(folder: CaptureFolder, trace: Trace) -> dict[int, Image]:
    """Store the images of captured kernels, each once; by the kernel's id."""
    by_number: dict[int, Image] = {}
    images: dict[int, Image] = {}
    for slot, capture in trace.captures.items():
        line = trace.images.get(capture.image)
        if line is None:
            continue
        if line.image not in by_number:
            size = _size(folder.raw / line.file)
            digest = _store(folder.raw / line.file, folder.part / IMAGES, size)
            by_number[line.image] = Image(sha256=digest, kind=line.kind, size=size)
        images[trace.shapes[slot].of] = by_number[line.image]
    return images


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be read ({error.strerror})") from error


def _store(path: Path, folder: Path, size: int) -> str:
    """Move a file to the name of its content's digest, which is returned."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        if _size(path) != size:
            raise EnvironmentProblem(f"{path.name}: the recording has another size than it says")
        folder.mkdir(mode=0o700, exist_ok=True)
        path.rename(folder / digest.hexdigest())
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be stored ({error.strerror})") from error
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be written ({error.strerror})") from error
