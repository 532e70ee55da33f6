"""A third backend, over host memory: its kernels are Python functions that a source names.

Registered as any other: its traits in ``tuner.backends``, this module in ``workers.backends``.
"""

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tuner.backends import registry as traits_registry
from tuner.backends.opencl import OPENCL
from tuner.device import Device
from tuner.plan import Binary, Build, CellPlan, KernelStep, MemsetStep, Usage
from tuner.telemetry import Vitals
from tuner.trial import Code, Rejected, Stage
from workers.backends import registry as adapter_registry
from workers.backends.port import BackendAdapter, CeilingKernels
from workers.devices.port import (
    GUARD_BYTES,
    WHOLE,
    Damage,
    Inspection,
    OtherContents,
    OwnInputs,
    Parts,
    Rotation,
    Staged,
    StagedBuffer,
    StagedValue,
    check_launch,
    unobserved,
)
from workers.variations import numbers, varied

TRAITS = replace(
    OPENCL,
    name="fake",
    title="Fake",
    suffixes=(".fake",),
    equal_code_is_equal_kernel=True,
    compiles_at_first_launch=False,
    unsupported={},
    refuses_undefined_calls=False,
    distributions=(),
    environment_prefixes=("FAKE_",),
    child_environment={},
    cache_variables=(),
)
DEVICE = Device(
    backend="fake",
    name="Fake",
    arch="fake",
    is_cpu=True,
    driver="1",
    max_threads_per_block=1024,
    max_block=(1024, 1024, 64),
    max_grid=(1 << 20,) * 3,
    warp_size=1,
    multiprocessors=1,
    max_shared_bytes_per_block=1 << 15,
    shared_bytes_per_multiprocessor=1 << 15,
    registers_per_multiprocessor=0,
    max_registers_per_block=0,
    max_registers_per_thread=0,
    max_threads_per_multiprocessor=1024,
    max_blocks_per_multiprocessor=1,
    l2_bytes=1 << 20,
    memory_bytes=1 << 30,
    compute_capability=0,
    base_align=64,
    dtypes=("float32", "int32"),
)
CANARY = 0xA5
LAUNCH_NS = 1000.0
"""Every launch takes as long, so that no load of the host makes a test fail."""
LAUNCH_MJ, THRIFTY_MJ = 2.0, 1.0
"""The energy of a launch of most kernels, and of the thrifty one."""
TICK_MJ = 64.0
"""By how much the energy counter changes at once."""


def register() -> None:
    """The two calls that make a backend known."""
    traits_registry.register(TRAITS)
    adapter_registry.register("fake", __name__)


class Buffer:
    """Bytes between two guards."""

    def __init__(self, size: int) -> None:
        self.raw = np.full(size + 2 * GUARD_BYTES, CANARY, np.uint8)
        self.bytes = self.raw[GUARD_BYTES : GUARD_BYTES + size]
        self.floats = self.bytes[: size // 4 * 4].view(np.float32)

    def write_outside(self, where: int) -> None:
        """A float before (-1) or behind (1) the payload."""
        start = GUARD_BYTES - 4 if where < 0 else GUARD_BYTES + self.bytes.size
        self.raw[start : start + 4] = 1

    def damage(self, argument: str) -> Damage | None:
        front, back = self.raw[:GUARD_BYTES], self.raw[GUARD_BYTES + self.bytes.size :]
        for where, part in (("front", front[::-1]), ("back", back)):
            wrong = np.flatnonzero(part != CANARY)
            if wrong.size:
                return Damage(argument=argument, where=where, offset=int(wrong[0]) + 1)
        return None


def affine(_, out, x, y, n):
    out.floats[:n] = 2 * x.floats[:n] + y.floats[:n]


def staged(_, out, x, scratch, n):
    scratch.floats[:n] = x.floats[:n]
    out.floats[:n] = scratch.floats[:n]


def counts(module, out, x, y, n):
    module["launches"] = module.get("launches", 0) + 1
    out.floats[:n] += module["launches"]


def overwrite(_, out, x, y, n):
    x.floats[5] = 1


def add(_, out, x, y, n):
    out.floats[:n] += x.floats[:n]


def thrifty(_, out, x, y, n):
    affine(_, out, x, y, n)


KERNELS: Mapping[str, Callable[..., None]] = {
    "affine": affine,
    "thrifty": thrifty,
    "nothing": lambda *_: None,
    "behind": lambda _, out, *rest: out.write_outside(1),
    "before": lambda _, out, *rest: out.write_outside(-1),
    "overwrite": overwrite,
    "add": add,
    "counts": counts,
    "staged": staged,
}


class FakeCompiler:
    """Every source says ``// runs NAME``, a name in :data:`KERNELS`; any other fails."""

    fingerprint: str | None = None

    def compile(self, build: Build) -> Binary | Rejected:
        found = re.search(r"// runs (\w+)", build.source)
        if found is None or found[1] not in KERNELS:
            detail = f"{build.file}:1: error: no kernel is named"
            return Rejected(stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail=detail)
        return Binary(
            build=build.digest,
            code=found[1].encode(),
            usage=tuple((entry, Usage()) for entry in build.entries),
            symbols=tuple((entry, entry) for entry in build.entries),
            compile_seconds=0.001,
        )


class FakeModule:
    """One function for each binary, and the variables of all."""

    def __init__(self, binaries: Sequence[Binary]) -> None:
        self.functions = [KERNELS[binary.code.decode()] for binary in binaries]
        self.variables: dict[str, int] = {}

    def release(self) -> None:
        self.functions.clear()


class FakeBufferSets:
    """Staged arguments in several sets, and the scratch that launchables attach."""

    def __init__(self, arguments: Sequence[Staged], sets: int) -> None:
        self.sets = sets
        self.arguments = [a for a in arguments if isinstance(a, StagedBuffer)]
        self.values = {
            a.name: int.from_bytes(a.packed, "little", signed=True)
            for a in arguments
            if isinstance(a, StagedValue)
        }
        self.contents: dict[str, np.ndarray] = {}
        self.mixed: dict[int, dict[str, np.ndarray]] = {}
        self.buffers = [{a.name: Buffer(a.size) for a in self.arguments} for _ in range(sets)]
        self.scratch: list[list[dict[str, Buffer]]] = []
        self.refill({a.name: a.contents for a in self.arguments if a.contents})

    def refill(self, contents: Mapping[str, str]) -> None:
        self.contents |= {name: np.fromfile(path, np.uint8) for name, path in contents.items()}
        for buffers in self.buffers:
            for name, buffer in buffers.items():
                kept = buffer.bytes.copy()
                buffer.raw[:] = CANARY
                buffer.bytes[:] = self.contents.get(name, kept)

    def restore(
        self,
        sets: Sequence[int],
        poison: int | None,
        other: OtherContents | OwnInputs | None = None,
    ) -> None:
        self.poison = poison
        self.mixed = {}
        if isinstance(other, OtherContents):
            files = other.contents.items()
            mixed = {name: np.fromfile(path, np.uint8) for name, path in files}
            self.mixed = {other.set_index: mixed}
        elif other is not None:
            for a in (a for a in self.arguments if a.varies):
                found = numbers(a, other, len(self.buffers))
                for index in sets:
                    contents = varied(self.contents[a.name], a, found[index])
                    self.mixed.setdefault(index, {})[a.name] = contents
        for index in set(sets):
            for a in self.arguments:
                if a.kind in ("in", "inout"):
                    self.buffers[index][a.name].bytes[:] = self.held(index)[a.name]
                elif a.kind == "out" and poison is not None:
                    self.buffers[index][a.name].bytes[:] = poison
            for made in self.scratch if poison is not None else ():
                for buffer in made[index].values():
                    buffer.bytes[:] = poison

    def held(self, index: int) -> dict[str, np.ndarray]:
        return self.contents | self.mixed.get(index, {})

    def inspect(self, set_index: int, expected: object, parts: Parts = WHOLE) -> Inspection:
        buffers = self.buffers[set_index]
        damage = next(filter(None, (buffers[a.name].damage(a.name) for a in self.arguments)), None)
        for a in self.arguments if damage is None else ():
            wrong = np.flatnonzero(buffers[a.name].bytes != self.held(set_index).get(a.name, 0))
            if a.kind == "in" and wrong.size:
                damage = Damage(argument=a.name, where="input", offset=int(wrong[0]))
        outputs = [a.name for a in self.arguments if a.kind in ("out", "inout")]
        return Inspection(
            damage=damage,
            outputs={
                name: buffers[name].bytes.tobytes()[slice(*parts.get(name, (0, None)))]
                for name in outputs
            },
            comparisons={},
        )

    def touched(self, sets: Sequence[int]) -> Damage | None:
        for index in sets:
            for a in self.arguments:
                buffer, poison = self.buffers[index][a.name], np.uint8(self.poison)
                wrong = np.flatnonzero(buffer.bytes != self.held(index).get(a.name, poison))
                if wrong.size or buffer.damage(a.name):
                    return Damage(argument=a.name, where="idle", offset=0)
        return None

    def release(self) -> None:
        self.buffers.clear()


class FakeLaunchable:
    """A cell's steps, run one after the other."""

    def __init__(
        self,
        device: "FakeDevice",
        module: FakeModule,
        cell: CellPlan,
        buffer_sets: FakeBufferSets,
    ) -> None:
        for step in cell.steps:
            if isinstance(step, KernelStep):
                check_launch(step, DEVICE)
        self.device = device
        self.module, self.cell, self.buffer_sets = module, cell, buffer_sets
        self.scratch = [
            {s.name: Buffer(4 * s.elements) for s in cell.scratch} for _ in range(buffer_sets.sets)
        ]
        buffer_sets.scratch.append(self.scratch)

    def trigger_compile(self, set_index: int) -> None:
        raise NotImplementedError("nothing is compiled at a first launch")

    def burst(self, order: Sequence[int], begins=unobserved, late=None) -> tuple[float, ...]:
        begins()
        for index in order:
            values = self.buffer_sets.values | self.buffer_sets.buffers[index] | self.scratch[index]
            for step in self.cell.steps:
                if isinstance(step, MemsetStep):
                    values[step.argument].bytes[:] = step.byte
                else:
                    function = self.module.functions[self.cell.build]
                    self.device.used_mj += THRIFTY_MJ if function is thrifty else LAUNCH_MJ
                    function(self.module.variables, *(values[name] for name in step.arguments))
        return (LAUNCH_NS,) * len(order)

    def repeat(self, order: Sequence[int], go_on: Callable[[int], bool]) -> None:
        replays = itertools.count(1)
        self.burst(order)
        while go_on(next(replays) * len(order)):
            self.burst(order)

    def release(self) -> None:
        self.buffer_sets.scratch.remove(self.scratch)


class FakeDevice:
    """The one device."""

    device = DEVICE
    identity = "fake-0"

    def __init__(self) -> None:
        self.used_mj = 0.0

    def rotation(self, size, cache, warmup, repeats) -> Rotation:
        sets = 1 if cache == "hot" else 10
        return Rotation(sets=sets, warmup=-(-warmup // sets), bursts=-(-repeats // sets))

    def vitals(self) -> Vitals | None:
        if "FAKE_OTHERS" not in os.environ:
            return None
        others = int(os.environ["FAKE_OTHERS"])
        return Vitals(sm_mhz=1, memory_mhz=1, watts=1.0, celsius=1, others=others)

    def millijoules(self) -> float | None:
        if "FAKE_NO_COUNTER" in os.environ:
            return None
        return self.used_mj // TICK_MJ * TICK_MJ

    def stage(self, arguments: Sequence[Staged], sets: int) -> FakeBufferSets:
        return FakeBufferSets(arguments, sets)

    def load(self, binaries: Sequence[Binary]) -> FakeModule:
        return FakeModule(binaries)

    def bind(
        self, module: FakeModule, cell: CellPlan, buffer_sets: FakeBufferSets
    ) -> FakeLaunchable:
        return FakeLaunchable(self, module, cell, buffer_sets)

    def close(self) -> None:
        pass


def ceilings(device: Device, side: int) -> CeilingKernels:
    source = "// runs nothing"
    entries = ("copy", "nothing")
    return CeilingKernels(
        build=Build(language="fake", file="ceilings.fake", source=source, entries=entries),
        products={},
    )


ADAPTER = BackendAdapter(
    count_devices=lambda: 1,
    open_device=lambda _: FakeDevice(),
    open_compiler=lambda _: FakeCompiler(),
    empty_kernel="// runs nothing",
    device_for_target=None,
    checkers=lambda *_: (),
    checkers_missing="the fake backend has no checkers",
    open_under_checker=lambda _: lambda _: None,
    profiler=None,
    counters_refused=None,
    ceilings=ceilings,
    open_runtime=None,
    occupants=None,
    open_replay=None,
)
