"""A CUDA driver over host memory: enough of CuPy's wrappers to test the backend without a GPU.

Launches are executed at once by Python functions that read the argument tables as the driver would.
"""
# ruff: noqa: N802, N815 (the driver's own names)

import ctypes
import hashlib
from collections.abc import Callable

import numpy as np

from tuner.experiment.arguments import item_bytes
from tuner.plan import Binary, Usage
from workers.backends.cuda.architectures import DTYPES, device_for
from workers.backends.cuda.checks import MODES, WORST
from workers.backends.cuda.driver import Cuda
from workers.comparison import Expected, compare


class FakeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def view(address: int, count: int, dtype="u1") -> np.ndarray:
    dtype = np.dtype(dtype)
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype)


_ARGUMENTS = {
    "restore_sets": 5,
    "vary_sets": 14,
    "find_damage": 2,
    "digest": 2,
    "compare": 12,
    "sweep": 3,
    "busy": 2,
    "hold": 2,
    "spoil_shared": 2,
    "write_late": 7,
}
"""How many arguments the harness's kernels have."""


class Taken:
    """The arguments of a launch as the driver takes them: their values at that time.

    Of a kernel whose ``count`` of arguments is not known, the caller keeps them.
    """

    def __init__(self, table: int, count: int | None) -> None:
        self.table = table
        if count is not None:
            places = view(table, count, "u8")
            self._values = np.array([view(int(place), 1, "u8")[0] for place in places])
            self._places = self._values.ctypes.data + 8 * np.arange(count, dtype=np.uint64)
            self.table = self._places.ctypes.data


class FakeRuntime:
    """Memory, streams and graphs. ``allocations`` shows leaks."""

    CUDARuntimeError = FakeError

    def __init__(self) -> None:
        self.allocations: dict[int, np.ndarray] = {}
        self.capturing: list[Callable[[], None]] | None = None
        self.begun: int | None = None
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.numbers = iter(range(1, 1 << 30))

    def malloc(self, size: int) -> int:
        raw = np.full(size + 512, 0xEE, np.uint8)
        address = -(-raw.ctypes.data // 512) * 512
        self.allocations[address] = raw
        return address

    def hostAlloc(self, size: int, flags: int) -> int:
        return self.malloc(size)

    def free(self, address: int) -> None:
        if address:
            del self.allocations[address]

    freeHost = free

    def memcpy(self, to: int, source: int, size: int, kind: int) -> None:
        ctypes.memmove(to, source, size)

    def memcpyAsync(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self.do(lambda: ctypes.memmove(to, source, size))

    def memset(self, place: int, byte: int, size: int) -> None:
        ctypes.memset(place, byte, size)

    def memsetAsync(self, place: int, byte: int, size: int, stream: int) -> None:
        assert stream == (0 if self.capturing is None else self.begun)
        self.do(lambda: ctypes.memset(place, byte, size))

    def streamSynchronize(self, stream: int) -> None:
        pass

    def streamBeginCapture(self, stream: int) -> None:
        self.capturing, self.begun = [], stream

    def streamEndCapture(self, stream: int) -> int:
        number = next(self.numbers)
        assert stream == self.begun
        self.graphs[number], self.capturing = self.capturing, None
        return number

    def graphInstantiate(self, graph: int) -> int:
        number = next(self.numbers)
        self.graphs[number] = self.graphs[graph]
        return number

    def graphLaunch(self, graph: int, stream: int) -> None:
        assert stream != self.begun, "nothing runs on the stream of captures"
        for action in self.graphs[graph]:
            action()

    def graphUpload(self, graph: int, stream: int) -> None:
        pass

    def graphDestroy(self, graph: int) -> None:
        del self.graphs[graph]

    graphExecDestroy = graphDestroy

    def streamCreateWithFlags(self, flags: int) -> int:
        return next(self.numbers)

    def do(self, action: Callable[[], None]) -> None:
        if self.capturing is None:
            action()
        else:
            self.capturing.append(action)


class FakeDriver:
    """Modules and launches. A kernel takes its grid, block and the addresses of its arguments."""

    CUDADriverError = FakeError

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.kernels: dict[str, Callable[..., None]] = {
            "restore_sets": self.restore_sets,
            "vary_sets": self.vary_sets,
            "find_damage": self.find_damage,
            "digest": self.digest,
            "compare": self.compare,
            "spoil_shared": lambda grid, block, table: None,
            "sweep": lambda grid, block, table: None,
            "busy": lambda grid, block, table: None,
            "hold": lambda grid, block, table: None,
            "write_late": self.write_late,
        }
        self.functions: dict[int, str] = {}
        self.prepared: dict[int, int] = {}
        self.globals: dict[str, int] = {}
        self.most_threads = 1024
        self.refused: int | None = None
        self.attributes: list[tuple[int, int, int]] = []
        self.late: list[list[int]] = []

    def moduleLoadData(self, code: bytes) -> int:
        return next(self.runtime.numbers)

    def moduleUnload(self, module: int) -> None:
        pass

    def moduleGetFunction(self, module: int, symbol: str) -> int:
        if symbol not in self.kernels:
            raise FakeError(500)
        known = {name: number for number, name in self.functions.items()}
        number = known.get(symbol) or next(self.runtime.numbers)
        self.functions[number] = symbol
        return number

    def moduleGetGlobal(self, module: int, symbol: str) -> int:
        if symbol not in self.globals:
            raise FakeError(500)
        return self.globals[symbol]

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:
        if value > 232448:
            raise FakeError(1)
        self.attributes.append((function, attribute, value))
        self.prepared[function] = value

    def funcGetAttribute(self, attribute: int, function: int) -> int:
        return {0: self.most_threads, 8: self.prepared.get(function, 49152)}[attribute]

    def launchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, table, extra) -> None:
        if self.refused is not None:
            raise FakeError(self.refused)
        assert self.runtime.capturing is not None, "a kernel is only ever launched in a graph"
        assert stream == self.runtime.begun
        if shared > self.prepared.get(function, 49152):
            raise FakeError(1)
        name = self.functions[function]
        kernel, taken = self.kernels[name], Taken(table, _ARGUMENTS.get(name))
        self.runtime.do(lambda: kernel((gx, gy, gz), (bx, by, bz), taken.table))

    def launchCooperativeKernel(self, *arguments) -> None:
        self.launchKernel(*arguments, 0)

    @staticmethod
    def argument(table: int, place: int, dtype="i8"):
        return view(int(view(table + 8 * place, 1, "u8")[0]), 1, dtype)[0]

    def restore_sets(self, grid, block, table) -> None:
        base, image, words, ids, count = (int(self.argument(table, k)) for k in range(5))
        numbers = view(ids, count, "i4") if ids else np.arange(count)
        for number in numbers:
            ctypes.memmove(base + int(number) * words * 16, image, words * 16)

    def vary_sets(self, grid, block, table) -> None:
        base, image, stride, offset, size, dtype, asked, mask, least, span, infinity, most = (
            int(self.argument(table, k)) for k in range(12)
        )
        item = item_bytes(DTYPES[dtype])
        held = view(image + offset, size // item, f"u{item}")
        for index, *places in view(asked, 3 * grid[1], "u8").reshape(-1, 3).tolist():
            to = view(base + index * stride + offset, size // item, f"u{item}")
            if infinity:
                to[:] = np.where(held != 0, held + 1 + places[0] % most, 0)
                continue
            first, second = (np.roll(held, place) for place in places)
            assert not span
            assert not least
            to[:] = first & ~np.array(mask, to.dtype) | second & np.array(mask, to.dtype)

    def write_late(self, grid, block, table) -> None:
        copies = [[int(self.argument(table, 3 * n + k)) for k in range(3)] for n in range(2)]
        self.late = copies

    def wait(self) -> None:
        """What a dependent kernel calls first: the kernel ahead of it ends."""
        for to, source, words in self.late:
            ctypes.memmove(to, source, words * 16)
        self.late = []

    def asked(self, grid, table) -> tuple[int, int, list[list[int]], int]:
        place, other = (int(self.argument(table, k)) for k in range(2))
        rows = view(place + 16, 4 * grid[1], "i8").reshape(-1, 4).tolist()
        return place, int(view(place + 8, 1, "i8")[0]), rows, other

    def find_damage(self, grid, block, table) -> None:
        number, at, stretches, image = self.asked(grid, table)
        for row, (offset, length, backwards, start) in enumerate(stretches):
            wrong = view(at + offset, length) != view(image + start, length)
            places = np.flatnonzero(wrong[::-1] if backwards else wrong)
            if places.size:
                view(number, 1, "u8")[0] = (row << 40) | int(places[0])
                return

    def digest(self, grid, block, table) -> None:
        number, at, stretches, key = self.asked(grid, table)
        digest = hashlib.blake2b(digest_size=8, key=key.to_bytes(8))
        for offset, length, *_ in stretches:
            digest.update(view(at + offset, length).tobytes())
        view(number, 1, "u8")[0] = int.from_bytes(digest.digest())

    def compare(self, grid, block, table) -> None:
        number = [int(self.argument(table, k)) for k in (0, 1, 2, 3, 4, 5, 9, 10, 11)]
        at, got_type, want, want_type, count, mode, own, poison, worst = number
        rtol, atol, ulp = (float(self.argument(table, k, "f8")) for k in (6, 7, 8))
        got = view(at, count, DTYPES[got_type])
        expected = Expected(
            path="", dtype=DTYPES[want_type], mode=MODES[mode], rtol=rtol, atol=atol, ulp=int(ulp)
        )
        goal = view(want, count, DTYPES[want_type])
        bounds = view(own, count, "f8") if own else None
        found = compare(got, goal, expected, None if poison < 0 else poison, bounds=bounds)
        rows = view(worst, grid[0], WORST)
        rows[:] = np.array((-1.0, 0, 0, 1 << 62, count, 0, 0, 0), WORST)
        rows[-1] = (
            found.error,
            found.got,
            found.want,
            found.index,
            found.first if found.failures else count,
            found.failures,
            found.unwritten,
            found.poisoned,
        )


class DirectDriver(FakeDriver):
    """Launches at once, outside graphs."""

    def launchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, table, extra) -> None:
        self.kernels[self.functions[function]]((gx, gy, gz), (bx, by, bz), table)


def fake_cuda() -> tuple[Cuda, FakeRuntime, FakeDriver]:
    runtime = FakeRuntime()
    driver = FakeDriver(runtime)
    return Cuda(runtime, driver), runtime, driver


def binary(*symbols: str) -> Binary:
    return Binary(
        build="",
        code=b"",
        usage=tuple((symbol, Usage()) for symbol in symbols),
        symbols=tuple((symbol, symbol) for symbol in symbols),
        compile_seconds=0.0,
    )


DEVICE = device_for("sm_90")
