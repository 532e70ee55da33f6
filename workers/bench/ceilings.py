"""Measures what a device can do at most, with kernels of each backend's adapter.

They are compiled, staged, launched and timed exactly as candidates are. Knows no experiment.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.plan import Binary, Build, CellPlan, KernelStep
from tuner.trial import Rejected
from workers.backends.port import Size
from workers.backends.registry import adapter_of
from workers.bench.protocol import RunBurst
from workers.bench.supervisor import Supervisor
from workers.compilers.worker import CompileWorker
from workers.devices.port import DeviceFailure, Staged, StagedBuffer, StagedValue
from workers.devices.staging import staged_scalar

_COPIED, _COPIED_ON_CPU = 256 << 20, 16 << 20
"""Bytes of a copy: more than a cache, and at most a sixteenth of the memory."""

SIDE = 2048
"""Rows of the matrices that are multiplied."""

_SECONDS = 30.0
_POISON = 0x3C

Compile = Callable[[Sequence[Build]], tuple[Binary, ...] | Rejected]


def compiled_ahead(device: Device, *, known: bool) -> Compile:
    """Compiles the ceilings' kernels: on a GPU from now on, while its host computes oracles.

    ``known`` ceilings need no kernels.
    """

    def compile_now(builds: Sequence[Build]) -> tuple[Binary, ...] | Rejected:
        with CompileWorker(device) as compiler:
            return compiler.compile(builds)

    if device.is_cpu or known:
        return compile_now
    pool = ThreadPoolExecutor(1, "ceilings")
    kernels = adapter_of(device.backend).ceilings(device, SIDE)
    compiling = pool.submit(compile_now, (kernels.build,))
    pool.shutdown(wait=False)
    return lambda _: compiling.result()


def measure_ceilings(server: Supervisor, device: Device, compile_all: Compile) -> Ceilings | str:
    """The ceilings of a child's device, or why they cannot be measured."""
    kernels = adapter_of(device.backend).ceilings(device, SIDE)
    compiled = compile_all((kernels.build,))
    if isinstance(compiled, Rejected):
        return f"the ceilings' kernels do not compile: {compiled.detail}"
    try:
        return _Measurement(server, device, server.load(compiled)).ceilings(kernels.products)
    except DeviceFailure as failure:
        return f"the ceilings cannot be measured: {failure.detail}"


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The kernels loaded into a child."""

    server: Supervisor
    device: Device
    module: int

    def ceilings(self, launches: Mapping[str, tuple[Size, Size]]) -> Ceilings:
        copied = min(
            _COPIED_ON_CPU if self.device.is_cpu else _COPIED, self.device.memory_bytes // 16
        )
        words = copied // 16
        copy = self._time(
            "copy",
            [_buffer("to", "uint32", 4 * words), _buffer("from", "uint32", 4 * words)],
            staged_scalar("count", "int64", words),
            (-(-words // 256), 1, 1),
            (256, 1, 1),
            "cold",
        )
        products = []
        for dtype, (grid, block) in launches.items():
            matrices = [_buffer(matrix, dtype, SIDE * SIDE) for matrix in "cab"]
            scalar = staged_scalar("n", "int32", SIDE)
            time = self._time(f"product_{dtype}", matrices, scalar, grid, block, "hot")
            products.append((dtype, 2.0 * SIDE**3 / time * 1e9))
        return Ceilings(
            copy_bytes_per_second=2.0 * words * 16 / copy * 1e9,
            launch_ns=self._time("nothing", [], None, (1, 1, 1), (1, 1, 1), "hot"),
            products=tuple(products),
        )

    def _time(
        self,
        entry: str,
        buffers: Sequence[StagedBuffer],
        scalar: StagedValue | None,
        grid: Size,
        block: Size,
        cache: Cache,
    ) -> float:
        """The median nanoseconds of a launch."""
        arguments: list[Staged] = [*buffers, *([scalar] if scalar else [])]
        names = tuple(argument.name for argument in arguments)
        size = sum(buffer.size for buffer in buffers)
        rotation = self.server.rotation(size, cache, 5, 10 if self.device.is_cpu else 100)
        buffer_sets = self.server.stage(
            arguments or [_buffer("unused", "uint32", 1)], rotation.sets
        )
        step = KernelStep(entry=entry, grid=grid, block=block, arguments=names)
        launchable = self.server.bind(self.module, CellPlan(build=0, steps=(step,)), buffer_sets)
        request = RunBurst(
            launchable=launchable,
            order=tuple(range(rotation.sets)),
            poison=_POISON,
            deadline=_SECONDS,
        )
        times: list[float] = []
        for burst in range(rotation.warmup + rotation.bursts):
            (seen,) = self.server.run_bursts([request])
            times += seen.times if burst >= rotation.warmup else ()
        self.server.release(launchable, buffer_sets)
        return statistics.median(times)


def _buffer(name: str, dtype: str, elements: int) -> StagedBuffer:
    """A buffer that is filled with ordinary numbers by the poison."""
    item = {"float16": 2}.get(dtype, 4)
    return StagedBuffer(
        name=name,
        kind="out",
        dtype=dtype,
        shape=(elements,),
        strides=(1,),
        size=elements * item,
        align=256,
    )
