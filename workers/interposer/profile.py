"""The profile of an application: its kernels with launches, shapes and GPU time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from operator import add

from workers.interposer.names import readable_name
from workers.interposer.recording import Extent
from workers.interposer.trace import Counter, KernelLine, ShapeLine, Trace

_INTEGER_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeProfile:
    """Launches of one shape.

    ``scalars`` are the arguments of 1, 2, 4 or 8 bytes that are not pointers, read as signed
    integers, by the parameter's index (floats appear as the integer with their bits). ``mean_ns``
    is the mean GPU time of the launches that were timed, ``None`` if there were none.
    """

    grid: Extent
    block: Extent
    shared_bytes: int
    cooperative: bool
    cluster: Extent | None
    scalars: dict[int, int]
    eager: int
    in_graphs: int
    timed: int
    mean_ns: float | None

    @property
    def launches(self) -> int:
        """Launches into streams and as nodes of launched graphs."""
        return self.eager + self.in_graphs

    @property
    def total_ns(self) -> float:
        """The time of all launches, from the mean; 0 where none was timed."""
        return (self.mean_ns or 0.0) * self.launches


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """One kernel: the shapes by total time; ``share`` of the time of all kernels."""

    name: str
    shapes: tuple[ShapeProfile, ...]
    share: float

    @property
    def readable(self) -> str:
        """The name for people."""
        return readable_name(self.name)

    @property
    def eager(self) -> int:
        """Launches into streams."""
        return sum(shape.eager for shape in self.shapes)

    @property
    def in_graphs(self) -> int:
        """Launches as nodes of launched graphs."""
        return sum(shape.in_graphs for shape in self.shapes)

    @property
    def total_ns(self) -> float:
        """The time of all launches of timed shapes."""
        return sum(shape.total_ns for shape in self.shapes)

    @property
    def untimed(self) -> int:
        """Launches of shapes that were never timed, hence not in ``total_ns``."""
        return sum(shape.launches for shape in self.shapes if shape.mean_ns is None)


def profile_of(traces: Iterable[Trace]) -> tuple[KernelProfile, ...]:
    """The kernels that all processes launched, by total time, then by launches."""
    shapes: dict[str, dict[tuple[object, ...], tuple[ShapeProfile, Counter]]] = defaultdict(dict)
    for trace in traces:
        for slot, shape in trace.shapes.items():
            counter = trace.counters.get(slot, Counter())
            if not counter.launches:
                continue
            kernel = trace.kernels[shape.of]
            scalars = _scalars(kernel, shape, trace.pointer_words.get(shape.of, frozenset()))
            key = shape_key(shape, scalars)
            _, known = shapes[kernel.name].get(key, (None, Counter()))
            total = added(known, counter)
            shapes[kernel.name][key] = (_shape(shape, scalars, total), total)
    kernels = {
        name: sorted((shape for shape, _ in found.values()), key=lambda s: -s.total_ns)
        for name, found in shapes.items()
    }
    whole = sum(shape.total_ns for found in kernels.values() for shape in found)
    profiles = [
        KernelProfile(name=name, shapes=tuple(found), share=_total(found) / whole if whole else 0.0)
        for name, found in kernels.items()
    ]
    return tuple(sorted(profiles, key=lambda k: (-k.total_ns, -k.eager - k.in_graphs, k.name)))


def shape_key(shape: ShapeLine, scalars: dict[int, int]) -> tuple[object, ...]:
    """What tells shapes of a kernel apart, over all processes."""
    return (
        shape.grid,
        shape.block,
        shape.shared_bytes,
        shape.cooperative,
        shape.cluster,
        tuple(scalars.items()),
    )


def added(one: Counter, other: Counter) -> Counter:
    """The sum of two counters."""
    return Counter(*map(add, astuple(one), astuple(other)))


def _total(shapes: Sequence[ShapeProfile]) -> float:
    return sum(shape.total_ns for shape in shapes)


def _scalars(kernel: KernelLine, shape: ShapeLine, pointer_words: frozenset[int]) -> dict[int, int]:
    return {
        index: int.from_bytes(bytes.fromhex(argument), "little", signed=True)
        for index, ((offset, size), argument) in enumerate(
            zip(kernel.parameters, shape.arguments, strict=True)
        )
        if size in _INTEGER_SIZES and not (size == 8 and offset // 8 in pointer_words)
    }


def _shape(shape: ShapeLine, scalars: dict[int, int], counter: Counter) -> ShapeProfile:
    return ShapeProfile(
        grid=shape.grid,
        block=shape.block,
        shared_bytes=shape.shared_bytes,
        cooperative=shape.cooperative,
        cluster=shape.cluster if any(shape.cluster) else None,
        scalars=scalars,
        eager=counter.eager,
        in_graphs=counter.in_graphs,
        timed=counter.timed,
        mean_ns=counter.ns / counter.timed if counter.timed else None,
    )
