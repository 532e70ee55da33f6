"""The bench's own kernels on a CUDA device: restoring, damage, comparison, cache, warm-up.

Owns ``checks.cu``, compiled when a bench first stages a shape. Expected outputs are on the device
for one comparison only; their copy is scrubbed afterwards. Compares exactly as
:mod:`workers.comparison`.
"""

import ctypes
import os
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.backends.cuda import CHECKS_FOLDER
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.experiment.arguments import item_bytes
from tuner.plan import Binary, Build
from tuner.trial import Rejected
from workers.backends.cuda.architectures import DTYPES
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.driver import TO_DEVICE, TO_HOST, Cuda
from workers.backends.cuda.pinned import PinnedFiles
from workers.backends.cuda.streams import KeptGraphs, Streams
from workers.comparison import ArrayComparison, Expected
from workers.compilers.cache import CachedCompiler
from workers.devices.port import NOISE, OwnInputs, StagedBuffer
from workers.variations import PLACES, numbers, recipe

MODES = ("close", "exact", "ulp")
"""Modes compared on the device; ``unordered`` outputs go to the supervisor, with their keys."""

_SOURCE = "checks.cu"
_ENTRIES = tuple(
    "restore_sets vary_sets spoil_shared find_damage digest compare sweep busy hold "
    "write_late".split()
)
_THREADS = 256
_MAX_BLOCKS = 1024
_GRAPHS = 32
_SCRUB = 0x5A
_LATE_NS = 20_000
"""How late a late write begins: a kernel that does not wait for it has begun by then."""
_LATE_SHARE = 4
"""It occupies one multiprocessor in so many, so that the next kernel finds room."""
_HOLD_NS = 10_000_000
"""What is held back goes on after so long if the host does not say so."""
_COMPARED = 4096
"""Comparisons remembered, at most."""

WORST = np.dtype(
    [
        ("error", "f8"),
        ("got", "f8"),
        ("want", "f8"),
        ("index", "i8"),
        ("first", "i8"),
        ("failures", "i8"),
        ("unwritten", "i8"),
        ("poisoned", "i8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes that no launch may change; a front guard is searched from its end.

    ``image`` is the offset in the image with which they are compared, the same unless it is given.
    """

    offset: int
    length: int
    backwards: bool = False
    image: int | None = None

    @property
    def row(self) -> tuple[int, int, int, int]:
        """As ``checks.cu`` reads it."""
        image = self.offset if self.image is None else self.image
        return self.offset, self.length, int(self.backwards), image


@dataclass(frozen=True, slots=True)
class LateCopy:
    """Addresses to copy to and from, and how many bytes."""

    to: int
    source: int
    size: int


class Arguments:
    """The arguments of one launch of the bench's kernels; kept until it is captured."""

    def __init__(self, *values: int | float) -> None:
        types = "".join("d" if isinstance(value, float) else "q" for value in values)
        self._packed = struct.pack(types, *values)

    def pointers(self) -> NDArray[np.uint64]:
        """The address of each value, as the driver reads them."""
        slots = np.frombuffer(self._packed, np.uint64)
        places: NDArray[np.uint64] = slots.ctypes.data + 8 * np.arange(slots.size, dtype=np.uint64)
        return places


def worst_of(blocks: np.ndarray[Any, Any]) -> ArrayComparison:
    """Combine the results of all blocks; the first of equal errors counts."""
    leading = blocks[blocks["error"] == blocks["error"].max()]
    first = leading[np.argmin(leading["index"])]
    failures = int(blocks["failures"].sum())
    return ArrayComparison(
        failures=failures,
        unwritten=int(blocks["unwritten"].sum()),
        poisoned=int(blocks["poisoned"].sum()),
        index=int(first["index"]),
        first=int(blocks["first"].min()) if failures else -1,
        got=float(first["got"]),
        want=float(first["want"]),
        error=float(first["error"]),
    )


def _compiled(device: Device) -> Binary | Rejected:
    """The kernels, taken from the folder that a bench's children share if one has compiled them."""
    source = Path(__file__).with_name(_SOURCE).read_text()
    build = Build(language="cuda", file=_SOURCE, source=source, entries=_ENTRIES)
    compiler = open_compiler(device)
    if (folder := os.environ.get(CHECKS_FOLDER)) is None:
        return compiler.compile(build)
    return CachedCompiler(compiler, Path(folder), compiler.fingerprint).compile(build)


class Checks:
    """The kernels, loaded on one device."""

    def __init__(self, cuda: Cuda, device: Device, streams: Streams, pinned: PinnedFiles) -> None:
        self._cuda, self._streams, self._pinned = cuda, streams, pinned
        self._graphs = KeptGraphs(cuda, streams, _GRAPHS)
        self._blocks = 4 * device.multiprocessors
        compiled = _compiled(device)
        if isinstance(compiled, Rejected):
            raise EnvironmentProblem(
                f"the bench's own kernels do not compile for {device.arch}: {compiled.detail}"
            )
        symbols = dict(compiled.symbols)
        with cuda.translated():
            self._module: int = cuda.driver.moduleLoadData(compiled.code)
            self._results: int = cuda.runtime.malloc(_MAX_BLOCKS * WORST.itemsize)
            self._sweep_bytes = 2 * device.l2_bytes
            self._swept: int = cuda.runtime.malloc(self._sweep_bytes)
            self._go: int = cuda.runtime.hostAlloc(4, 0)
        self._units, self._shared_bytes = device.multiprocessors, device.max_shared_bytes_per_block
        self._functions = {
            name: cuda.function(self._module, symbol, self._shared(name))
            for name, symbol in symbols.items()
        }
        self._goes = ctypes.c_int.from_address(self._go)
        self._room = (0, 0)
        self._compared: dict[Hashable, ArrayComparison] = {}
        self._key = int.from_bytes(os.urandom(8)) >> 1

    def restore(self, base: int, image: int, stride: int, sets: Sequence[int], total: int) -> None:
        """Copy the image of a set over these sets, of ``total``; in stream order."""
        ids = 0
        if list(sets) != list(range(total)):
            numbers = np.array(sets, np.int32)
            ids = self._place(numbers.nbytes)
            self._cuda.runtime.memcpy(ids, numbers.ctypes.data, numbers.nbytes, TO_DEVICE)
        words, most = stride // 16, 4 * self._blocks
        blocks = min(-(-words // _THREADS), most)
        parts = max(1, min(len(sets), most // blocks))
        self._launch("restore_sets", (blocks, parts), base, image, words, ids, len(sets))

    def vary(
        self,
        base: int,
        image: int,
        stride: int,
        sets: Sequence[int],
        total: int,
        buffer: StagedBuffer,
        offset: int,
        own: OwnInputs,
    ) -> None:
        """Write what follows from a buffer of the image to these sets, of ``total``; in order."""
        own_numbers = numbers(buffer, own, total)
        asked = np.array([(index, *own_numbers[index]) for index in sets], np.uint64)
        place = self._place(asked.nbytes)
        self._cuda.runtime.memcpy(place, asked.ctypes.data, asked.nbytes, TO_DEVICE)
        blocks = max(1, min(-(-buffer.size // item_bytes(buffer.dtype) // _THREADS), self._blocks))
        how, dtype = recipe(buffer), DTYPES.index(buffer.dtype)
        words = how.mask, how.least, how.span, how.infinity, PLACES
        sizes = base, image, stride, offset, buffer.size, dtype, place
        lowest, highest = map(float, how.limits)
        self._launch("vary_sets", (blocks, len(sets)), *sizes, *words, lowest, highest)

    def spoil(self) -> None:
        """Fill shared memory with noise; in stream order."""
        self._launch("spoil_shared", (2 * self._units, 1), self._shared_bytes // 4, NOISE)

    def damage(self, at: int, image: int, stretches: Sequence[Stretch]) -> tuple[int, int] | None:
        """The first changed stretch of the memory at this address, and the distance into it."""
        nothing = np.iinfo(np.uint64).max
        code = self._over("find_damage", at, stretches, image, nothing)
        if code == nothing:
            return None
        return code >> 40, code & (1 << 40) - 1

    def digest(self, at: int, stretches: Sequence[Stretch]) -> int:
        """Keyed hash of these bytes: unforgeable without the key. ``at`` is aligned to 16 bytes."""
        return self._over("digest", at, stretches, self._key, 0)

    def compare(
        self, at: int, buffer: StagedBuffer, expected: Expected, poison: int | None
    ) -> ArrayComparison:
        """Compare the output at this address with its oracle.

        Results are remembered by the output's digest, so that the oracle is seldom copied.
        """
        before = at % 16
        digest = self.digest(at - before, [Stretch(before, buffer.size)])
        asked = digest, before, buffer.dtype, buffer.shape, expected, poison
        if asked not in self._compared:
            if len(self._compared) == _COMPARED:
                self._compared.clear()
            self._compared[asked] = self._compare(at, buffer, expected, poison)
        return self._compared[asked]

    def sweep(self) -> None:
        """Evict what was written from the cache; in stream order."""
        self._launch(
            "sweep", (self._blocks, 1), self._swept, self._sweep_bytes // 16, self._results
        )

    def busy(self, nanoseconds: int, blocks: int) -> None:
        """Keep so many blocks busy for so long; in stream order."""
        self._launch("busy", (blocks, 1), nanoseconds, self._results)

    def hold(self) -> None:
        """Hold back what is queued from now on until :meth:`go`."""
        self._goes.value = 0
        self._launch("hold", (1, 1), self._go, _HOLD_NS)

    def go(self) -> None:
        """Let go on what :meth:`hold` holds back."""
        self._goes.value = 1

    def write_late(self, copies: Sequence[LateCopy], stream: int) -> None:
        """Launch, on a stream that is captured, a kernel that lets the next begin and then copies.

        The next kernel must launch dependently on it.
        """
        values = [value for one in copies for value in (one.to, one.source, one.size // 16)]
        arguments = Arguments(*values, _LATE_NS)
        pointers = arguments.pointers()
        blocks = max(1, self._units // _LATE_SHARE)
        shape = (blocks, 1, 1, _THREADS, 1, 1, 0, stream)
        self._cuda.driver.launchKernel(
            self._functions["write_late"], *shape, pointers.ctypes.data, 0
        )

    def close(self) -> None:
        """Free everything."""
        self._graphs.close()
        self._cuda.runtime.free(self._room[0])
        self._cuda.runtime.free(self._results)
        self._cuda.runtime.free(self._swept)
        self._cuda.runtime.freeHost(self._go)
        self._cuda.driver.moduleUnload(self._module)

    def _launch(self, name: str, grid: tuple[int, int], *values: int | float) -> None:
        key = name, grid, values
        graph = self._graphs.get(key, partial(self._capture, *key))
        self._cuda.runtime.graphLaunch(graph, self._streams.run)

    def _capture(self, name: str, grid: tuple[int, int], values: tuple[int | float, ...]) -> None:
        shape = (*grid, 1, _THREADS, 1, 1, self._shared(name), self._streams.capture)
        arguments = Arguments(*values)
        pointers = arguments.pointers()
        self._cuda.driver.launchKernel(self._functions[name], *shape, pointers.ctypes.data, 0)

    def _compare(
        self, at: int, buffer: StagedBuffer, expected: Expected, poison: int | None
    ) -> ArrayComparison:
        count = int(np.prod(buffer.shape, dtype=np.int64))
        bounded = expected.bounds or ""
        rest = self._pinned.size(bounded) if bounded else 0
        size = rest + self._pinned.size(expected.path)
        place = self._place(size)
        want = place + rest  # behind the bounds, whose elements are the largest
        self._pinned.copy(expected.path, want)
        if bounded:
            self._pinned.copy(bounded, place)
        runtime = self._cuda.runtime
        blocks = max(1, min(-(-count // _THREADS), self._blocks, _MAX_BLOCKS))
        values = (
            at,
            DTYPES.index(buffer.dtype),
            want,
            DTYPES.index(expected.dtype),
            count,
            MODES.index(expected.mode),
            float(expected.rtol),
            float(expected.atol),
            float(expected.ulp),
            place if bounded else 0,
            -1 if poison is None else poison,
            self._results,
        )
        self._launch("compare", (blocks, 1), *values)
        runtime.memsetAsync(place, _SCRUB, size, self._streams.run)
        found = np.empty(blocks, WORST)
        runtime.memcpy(found.ctypes.data, self._results, found.nbytes, TO_HOST)
        return worst_of(found)

    def _over(
        self, name: str, at: int, stretches: Sequence[Stretch], other: int, start: int
    ) -> int:
        """Run a reduction kernel over stretches of the memory at this address.

        All that changes from launch to launch goes in one copy, with the start value.
        """
        rows = [n for s in stretches for n in s.row]
        asked = np.array([start, at, *rows], np.uint64)
        place = self._place(asked.nbytes)
        runtime = self._cuda.runtime
        runtime.memcpy(place, asked.ctypes.data, asked.nbytes, TO_DEVICE)
        longest = max(s.length for s in stretches)
        blocks = max(1, min(-(-longest // (16 * _THREADS)), self._blocks))
        self._launch(name, (blocks, len(stretches)), place, other)
        runtime.memcpy(asked.ctypes.data, place, 8, TO_HOST)
        return int(asked[0])

    def _shared(self, name: str) -> int:
        """Bytes of dynamic shared memory that a kernel takes."""
        return self._shared_bytes if name == "spoil_shared" else 0

    def _place(self, size: int) -> int:
        """Temporary device memory, at least this large."""
        address, room = self._room
        if room < size:
            self._room = (0, 0)
            if address:
                self._cuda.runtime.free(address)
            self._room = (self._cuda.runtime.malloc(size), size)
        return self._room[0]
