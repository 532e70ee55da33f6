"""Reads what the processes of an application recorded: a log and counters for each.

A log has one JSON line for each kernel, shape, module image, capture and note; the counters are
fixed-size records, indexed by the shape's slot. Both are complete up to the moment a process ended,
however it ended. They were written inside a foreign process, so every line is checked.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError

from tuner.errors import EnvironmentProblem
from tuner.files import first_problem
from workers.interposer.recording import Count, Hex, Line

MAX_LOG_BYTES = 256 << 20
_COUNTER = struct.Struct("<4Q")
_STRICT = ConfigDict(extra="forbid", strict=True)
FileName = Annotated[str, Field(pattern=r"^[0-9]+(-[0-9]+)?\.[a-z0-9.]+$", max_length=100)]

_Word = Annotated[int, Field(ge=0, lt=1 << 32)]
LoggedExtent = tuple[_Word, _Word, _Word]
"""May have zeros: without a cluster, and of a launch that the driver refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """The device of the first launch, as in ``recording.RecordedDevice``."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    device: Line
    compute_capability: Count
    driver: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """A kernel; ``parameters`` are offsets and sizes, unknown unless ``readable``.

    ``attributes`` are in the order of ``recording.Attributes``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    kernel: Count
    name: Line
    readable: bool
    parameters: tuple[tuple[Count, Count], ...]
    attributes: tuple[Count, Count, Count, Count, Count, Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointersLine:
    """All 8-byte words of a kernel's parameter area in which a device pointer was seen."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    pointers_of: Count
    words: tuple[Count, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLine:
    """A shape of kernel ``of``, with the arguments of its first launch; ``shape`` is its slot."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    shape: Count
    of: Count
    grid: LoggedExtent
    block: LoggedExtent
    shared_bytes: Count
    cooperative: bool
    cluster: LoggedExtent
    arguments: tuple[Hex, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLine:
    """A module's image, in a file beside the log."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    image: Count
    kind: Literal["cubin", "fatbin", "ptx"]
    file: FileName


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLine:
    """A buffer of a capture, as in ``recording.Buffer``, with the files of its content."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    address: Count
    size: Count
    allocation_address: Count
    allocation_size: Count
    truncated: bool
    before: FileName
    after: FileName


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureLine:
    """The recorded launch of the shape with slot ``capture``; ``image`` is 0 if not known.

    ``pointers`` are parameter, place in it, buffer, and offset in the buffer.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    capture: Count
    from_graph: bool
    image: Count
    arguments: tuple[Hex, ...]
    pointers: tuple[tuple[Count, Count, Count, Count], ...]
    buffers: tuple[BufferLine, ...]
    inner_pointers: Count
    too_many_pointers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """Whether launches of a shape are replaced; ``decision`` is the slot of their counter.

    ``reason`` says why not; ``image`` is the tuned kernel's file.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    decision: Count
    shape: Count
    substituted: bool
    reason: Line
    image: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceLine:
    """How a tuned kernel's results differed, for one launch of the shape ``difference``.

    Of the buffer in ``parameter``: elements beyond the tolerance, elements that are not equal bit
    for bit, their largest distance, and bytes changed outside of what the spec says is written.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    difference: Count
    parameter: Count
    failures: Count
    unequal: Count
    worst: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]
    outside: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteLine:
    """Something for the user; ``about`` is a kernel's name, or empty."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    note: Line
    about: Line


def _kind(given: Any) -> str | None:
    """The first key of a line says what it is."""
    return next(iter(given), None) if isinstance(given, dict) else None


LogLine = Annotated[
    Annotated[DeviceLine, Tag("device")]
    | Annotated[KernelLine, Tag("kernel")]
    | Annotated[PointersLine, Tag("pointers_of")]
    | Annotated[ShapeLine, Tag("shape")]
    | Annotated[ImageLine, Tag("image")]
    | Annotated[CaptureLine, Tag("capture")]
    | Annotated[DecisionLine, Tag("decision")]
    | Annotated[DifferenceLine, Tag("difference")]
    | Annotated[NoteLine, Tag("note")],
    Discriminator(_kind),
]
_LINE: TypeAdapter[LogLine] = TypeAdapter(LogLine)


@dataclass(frozen=True, slots=True)
class Counter:
    """Four numbers of a slot.

    Of a shape: launches into streams, launches as nodes of launched graphs, launches that were
    timed, and their time. Of a decision they are read by ``injection``.
    """

    eager: int = 0
    in_graphs: int = 0
    timed: int = 0
    ns: int = 0

    @property
    def launches(self) -> int:
        """All launches."""
        return self.eager + self.in_graphs


@dataclass(slots=True)
class Trace:
    """What one process recorded: kernels by id, shapes by slot, captures by slot, images by id."""

    pid: int
    device: DeviceLine | None = None
    kernels: dict[int, KernelLine] = field(default_factory=dict)
    pointer_words: dict[int, frozenset[int]] = field(default_factory=dict)
    shapes: dict[int, ShapeLine] = field(default_factory=dict)
    images: dict[int, ImageLine] = field(default_factory=dict)
    captures: dict[int, CaptureLine] = field(default_factory=dict)
    decisions: list[DecisionLine] = field(default_factory=list)
    differences: list[DifferenceLine] = field(default_factory=list)
    notes: list[NoteLine] = field(default_factory=list)
    counters: Mapping[int, Counter] = field(default_factory=dict)

    def add(self, line: LogLine) -> str:
        """Take in one line; returns what is wrong with its references, or nothing."""
        match line:
            case DeviceLine():
                self.device = line
            case KernelLine(kernel=number):
                self.kernels[number] = line
            case PointersLine(pointers_of=number, words=words):
                self.pointer_words[number] = frozenset(words)
            case ShapeLine(shape=slot, of=kernel, arguments=arguments):
                if kernel not in self.kernels:
                    return f"shape of kernel {kernel}, which is not there"
                if len(arguments) != len(self.kernels[kernel].parameters):
                    return "a shape whose arguments are not its kernel's"
                self.shapes[slot] = line
            case ImageLine(image=number):
                self.images[number] = line
            case CaptureLine(capture=slot):
                if slot not in self.shapes:
                    return f"capture of shape {slot}, which is not there"
                self.captures[slot] = line
            case DecisionLine(shape=slot):
                if slot not in self.shapes:
                    return f"decision on shape {slot}, which is not there"
                self.decisions.append(line)
            case DifferenceLine(difference=slot):
                if slot not in self.shapes:
                    return f"difference of shape {slot}, which is not there"
                self.differences.append(line)
            case NoteLine():
                self.notes.append(line)
        return ""


def read_traces(folder: Path) -> list[Trace]:
    """The traces of all processes that recorded into ``folder``, in order of their process ids.

    Raises:
        EnvironmentProblem: a log is too large or has an invalid line.
    """
    logs = sorted(folder.glob("*.log"), key=lambda path: (len(path.name), path.name))
    return [_read_trace(path) for path in logs]


def _read_trace(path: Path) -> Trace:
    trace = Trace(pid=int(path.stem.partition("-")[0]))
    if path.stat().st_size > MAX_LOG_BYTES:
        raise EnvironmentProblem(f"{path}: is larger than {MAX_LOG_BYTES >> 20} MiB")
    lines = path.read_bytes().split(b"\n")
    for number, text in enumerate(lines[:-1], 1):  # what follows the last line break is cut short
        try:
            problem = trace.add(_LINE.validate_json(text))
        except ValidationError as error:
            problem = first_problem(error)
        if problem:
            raise EnvironmentProblem(
                f"{path.name}:{number}: {problem}; the application wrote to its own recording"
            )
    trace.counters = _read_counters(path.with_suffix(".counts"))
    return trace


def _read_counters(path: Path) -> dict[int, Counter]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    whole = len(content) // _COUNTER.size * _COUNTER.size
    records = enumerate(_COUNTER.iter_unpack(content[:whole]))
    return {slot: Counter(*values) for slot, values in records if any(values)}
