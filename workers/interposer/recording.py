"""The capture directory: what ``kernelwright capture`` recorded of a running application.

Layout: ``capture.json`` (a :class:`Recording`), ``images/SHA256`` (modules as the application
loaded them: cubin, fatbin or PTX) and ``buffers/SHA256`` (device memory before and after a launch).
Files are named by the SHA-256 of their content, so equal contents are stored once. The folder may
hold secrets of the application: it is readable by its owner only (0700, files 0600).

A recording comes from outside: every field is bounded, every reference resolved, and files are read
only by their digest from the two folders, without following links, with the content checked.
"""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from tuner.errors import SpecError
from tuner.files import UnreadableFile, first_problem, read_bounded
from tuner.printable import printable_line

FILE, IMAGES, BUFFERS = "capture.json", "images", "buffers"
MAX_RECORDING_BYTES = 64 << 20
"""Largest ``capture.json``: that of 64 shapes with 4 KiB of parameters has less than 1 MiB."""

MAX_PARAMETER_BYTES = 32764
"""CUDA's largest parameter area of a kernel."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Address = Annotated[int, Field(ge=0, lt=1 << 64)]
Side = Annotated[int, Field(ge=1, lt=1 << 32)]
Extent = tuple[Side, Side, Side]
Line = Annotated[str, Field(max_length=4096), AfterValidator(printable_line)]
"""Text of the application on one line, its control characters escaped."""

Argument = Annotated[str, Field(max_length=1 << 17, pattern=r"^[^\x00]*$")]
Hex = Annotated[str, Field(max_length=2 * MAX_PARAMETER_BYTES, pattern=r"^([0-9a-f]{2})*$")]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The recorded process: its command line, working directory, process id and exit status.

    ``exit_code`` is negative for a signal (-11: segmentation fault), as Python's ``subprocess``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    argv: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=4096)]
    directory: Argument
    pid: Count
    exit_code: Annotated[int, Field(ge=-128, lt=256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDevice:
    """The device of the recorded launches.

    ``compute_capability`` is ``10 * major + minor`` (90 on an H100); ``driver`` is the CUDA version
    of the driver as ``cuDriverGetVersion`` gives it (13000 for 13.0).
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Line
    compute_capability: Count
    driver: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A module's image as it was given to the driver: ``images/SHA256``, ``size`` bytes."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    sha256: Digest
    kind: Literal["cubin", "fatbin", "ptx"]
    size: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Offset and size in bytes of one parameter in the kernel's parameter area."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    offset: Annotated[int, Field(ge=0, le=MAX_PARAMETER_BYTES)]
    size: Annotated[int, Field(ge=1, le=MAX_PARAMETER_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What the driver says of a loaded kernel; sizes in bytes.

    ``max_dynamic_shared_bytes`` is the opt-in limit that the application set for it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    registers: Count
    static_shared_bytes: Count
    max_dynamic_shared_bytes: Count
    local_bytes: Count
    constant_bytes: Count
    max_threads_per_block: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernel:
    """A kernel: mangled name, image, parameter layout, attributes.

    ``image`` is ``None`` if the application loaded the module in a way that was not seen.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Line
    image: Image | None
    parameters: Annotated[tuple[Parameter, ...], Field(max_length=4096)]
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A device pointer inside a parameter.

    The eight bytes at ``at`` of parameter ``parameter`` point to byte ``offset`` of ``buffer``
    (an index into the launch's buffers).
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    parameter: Count
    at: Count
    buffer: Count
    offset: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A piece of device memory that a launch may read or write; addresses and sizes in bytes.

    It begins at ``address`` and has ``size`` bytes of the allocation at ``allocation_address``,
    which has ``allocation_size`` bytes. An allocation may hold several tensors. ``before`` and
    ``after`` are digests of files in ``buffers/``, each of ``size`` bytes. ``truncated``: the
    allocation reaches beyond the captured bytes, because of the limit on what is captured.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    address: Address
    size: Count
    allocation_address: Address
    allocation_size: Count
    before: Digest
    after: Digest
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All launches of one shape: same kernel, grid, block, shared bytes and scalar arguments.

    ``eager`` launches went to a stream; ``in_graphs`` counts kernel nodes of launched graphs.
    ``arguments`` are the raw bytes of each parameter of the first launch seen, in hexadecimal, also
    of structs. ``captured``: that launch's memory is in ``buffers``, to which ``pointers`` refer;
    ``from_graph`` says that it ran inside a graph. Shapes beyond the limit on captures have neither
    pointers nor buffers. ``notes`` say what a replay cannot reproduce.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    kernel: Count
    grid: Extent
    block: Extent
    shared_bytes: Count
    cooperative: bool
    cluster: Extent | None
    eager: Count
    in_graphs: Count
    arguments: Annotated[tuple[Hex, ...], Field(max_length=4096)]
    captured: bool
    from_graph: bool
    pointers: Annotated[tuple[Pointer, ...], Field(max_length=4096)]
    buffers: Annotated[tuple[Buffer, ...], Field(max_length=4096)]
    notes: Annotated[tuple[Line, ...], Field(max_length=16)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The content of ``capture.json``; ``launches`` refer to ``kernels`` by index.

    ``format`` is raised with every change that readers of older recordings cannot skip.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    format: Literal[1]
    application: Application
    device: RecordedDevice
    kernels: Annotated[tuple[RecordedKernel, ...], Field(min_length=1, max_length=4096)]
    launches: Annotated[tuple[Launch, ...], Field(min_length=1, max_length=4096)]


RECORDING: TypeAdapter[Recording] = TypeAdapter(Recording)


def read_recording(folder: Path) -> Recording:
    """Read and check ``capture.json`` of a capture directory; its other files are not opened.

    Raises:
        SpecError: it is missing, unreadable or inconsistent.
    """
    path = folder / FILE
    try:
        text = read_bounded(path, MAX_RECORDING_BYTES)
        if text is None:
            raise SpecError(
                f"{path}: no such file; name a folder that 'kernelwright capture' wrote"
            )
        recording = RECORDING.validate_json(text)
    except UnreadableFile as error:
        raise SpecError(f"{path}: {error}") from error
    except ValidationError as error:
        raise SpecError(f"{path}: {first_problem(error)}; capture again") from error
    for index, launch in enumerate(recording.launches):
        problem = _inconsistency(recording, launch)
        if problem:
            raise SpecError(f"{path}: launches.{index}: {problem}; capture again")
    return recording


def read_image(folder: Path, image: Image) -> bytes:
    """The content of a module's image.

    Raises:
        SpecError: the file is missing, not regular, or its size or content differ.
    """
    return _read(folder / IMAGES / image.sha256, image.size, image.sha256)


def read_buffer(folder: Path, buffer: Buffer, digest: Digest) -> bytes:
    """The captured bytes of ``buffer``; ``digest`` is its ``before`` or ``after``.

    Raises:
        SpecError: the file is missing, not regular, or its size or content differ.
    """
    return _read(folder / BUFFERS / digest, buffer.size, digest)


def check_not_link(folder: Path) -> None:
    """Check that a folder inside a capture, if it exists, is not a link to another place.

    Raises:
        SpecError: it is a link.
    """
    if folder.is_symlink():
        raise SpecError(f"{folder}: is a link, which is not followed; put a folder in its place")


def _inconsistency(recording: Recording, launch: Launch) -> str:
    """What is wrong with a launch's references, in words; empty if nothing is."""
    if launch.kernel >= len(recording.kernels):
        return f"kernel {launch.kernel} does not exist"
    parameters = recording.kernels[launch.kernel].parameters
    sizes = [len(argument) // 2 for argument in launch.arguments]
    if sizes != [parameter.size for parameter in parameters]:
        return "the arguments differ from the kernel's parameters in number or size"
    if not launch.captured and (launch.pointers or launch.buffers):
        return "buffers of a launch that was not captured"
    for pointer in launch.pointers:
        if pointer.parameter >= len(sizes) or pointer.at + 8 > sizes[pointer.parameter]:
            return f"no pointer fits at byte {pointer.at} of parameter {pointer.parameter}"
        if pointer.buffer >= len(launch.buffers):
            return f"buffer {pointer.buffer} does not exist"
        buffer = launch.buffers[pointer.buffer]
        argument = bytes.fromhex(launch.arguments[pointer.parameter])
        address = int.from_bytes(argument[pointer.at : pointer.at + 8], "little")
        if pointer.offset > buffer.size or address != buffer.address + pointer.offset:
            return f"the pointer in parameter {pointer.parameter} is not inside its buffer"
    for buffer in launch.buffers:
        start = buffer.address - buffer.allocation_address
        if start < 0 or start + buffer.size > buffer.allocation_size:
            return f"the buffer at {buffer.address:#x} reaches beyond its allocation"
    return ""


def _read(path: Path, size: int, digest: str) -> bytes:
    remedy = "capture again"
    try:
        check_not_link(path.parent)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise SpecError(f"{path}: cannot be opened ({error.strerror}); {remedy}") from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            raise SpecError(f"{path}: is not a regular file of {size} bytes; {remedy}")
        content = file.read(size)
    if hashlib.sha256(content).hexdigest() != digest:
        raise SpecError(f"{path}: its content does not have the digest that names it; {remedy}")
    return content
