"""The bench child, a thin server of one device. Its arguments are the adapter and the index.

Holds the device context alone and executes one request after the other. Decides nothing and knows
no expected value, because candidate code runs in this process.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.errors import EnvironmentProblem
from tuner.trial import Code
from workers.backends.port import BackendAdapter
from workers.backends.registry import load
from workers.bench.protocol import (
    MARK,
    REPEATS,
    REPLY,
    REQUESTS,
    Bind,
    Broken,
    BurstReply,
    Describe,
    Described,
    Done,
    EnergyMeasured,
    Failed,
    InspectSet,
    Load,
    MeasureEnergy,
    PlanRotation,
    Refill,
    Release,
    Reply,
    Request,
    Rotated,
    RunBurst,
    SetInspected,
    StageBuffers,
    TriggerCompile,
)
from workers.channel import Channel, ChannelClosed
from workers.comparison import Expected
from workers.devices.port import (
    BranchPredictor,
    BufferSets,
    DeviceBackend,
    DeviceFailure,
    EnergyMeter,
    EnergyReading,
    Inspection,
    Launchable,
    Module,
    RepeatingLaunchable,
)

_NO_COUNTER = (
    "this device has no energy counter of its own (a slice of a GPU shares its GPU's): "
    "set objective: time"
)


class _Server:
    """One device and the handles given out on it.

    ``mark`` is called when the launches of a burst begin, and when they have ended.
    """

    def __init__(self, adapter: BackendAdapter, index: int, mark: Callable[[], None]) -> None:
        self._adapter = adapter
        self._index = index
        self._mark = mark
        self._opened: DeviceBackend | None = None
        self._buffer_sets: dict[int, BufferSets] = {}
        self._modules: dict[int, Module] = {}
        self._launchables: dict[int, tuple[Launchable, BufferSets]] = {}
        self._sent: dict[int, dict[str, bytes]] = {}
        """Outputs by launchable, for bursts that send only what has changed."""

    def answer(self, request: Request, code: Iterator[bytes]) -> tuple[Reply, list[bytes]]:
        """Carry out one request, with the code of its binaries; failures become replies."""
        try:
            return self._do(request, code)
        except DeviceFailure as failure:
            reply = Failed(code=failure.code, detail=failure.detail, sticky=failure.sticky)
            return reply, []
        except EnvironmentProblem as problem:
            return Broken(detail=str(problem)), []
        except MemoryError as error:
            return Failed(code=Code.OUT_OF_MEMORY, detail=str(error), sticky=True), []

    @property
    def _device(self) -> DeviceBackend:
        if self._opened is None:
            self._opened = self._adapter.open_device(self._index)
        return self._opened

    def _do(self, request: Request, code: Iterator[bytes]) -> tuple[Reply, list[bytes]]:
        device = self._device
        match request:
            case Describe():
                return Described(device=device.device, identity=device.identity), []
            case PlanRotation():
                rotation = device.rotation(
                    request.size,
                    request.cache,
                    request.warmup,
                    request.repeats,
                )
                return Rotated(rotation=rotation), []
            case StageBuffers():
                staged = device.stage(request.arguments, request.sets)
                self._buffer_sets[request.buffer_sets] = staged
            case Refill():
                self._buffer_sets[request.buffer_sets].refill(request.contents)
            case Load():
                self._modules[request.module] = device.load(
                    [replace(binary, code=next(code)) for binary in request.binaries]
                )
            case Bind():
                buffer_sets = self._buffer_sets[request.buffer_sets]
                module = self._modules[request.module]
                launchable = device.bind(module, request.cell, buffer_sets)
                self._launchables[request.launchable] = (launchable, buffer_sets)
            case TriggerCompile():
                launchable, owner = self._launchables[request.launchable]
                owner.restore([request.index], request.poison)
                launchable.trigger_compile(request.index)
            case RunBurst():
                return self._run_burst(request)
            case MeasureEnergy():
                return self._measure_energy(request), []
            case InspectSet():
                _, owner = self._launchables[request.launchable]
                seen = _inspection(owner, request, {})
                reply = SetInspected(damage=seen.damage, outputs=tuple(seen.outputs))
                return reply, list(seen.outputs.values())
            case Release():
                self._release(request)
        return Done(), []

    def _run_burst(self, request: RunBurst) -> tuple[Reply, list[bytes]]:
        launchable, buffer_sets = self._launchables[request.launchable]
        buffer_sets.restore(request.restored, request.poison, request.other)
        if request.forgets and isinstance(self._device, BranchPredictor):
            self._device.forget_branches()
        began = time.perf_counter_ns()
        times = launchable.burst(request.order, self._mark, request.late)
        host_ns = float(time.perf_counter_ns() - began)
        self._mark()
        vitals = self._device.vitals() if request.read_telemetry else None
        seen = _inspection(buffer_sets, request, request.expected)
        changed = self._changed(request.launchable, seen) if request.changed_only else seen.outputs
        reply = BurstReply(
            times=times,
            host_ns=host_ns,
            damage=seen.damage,
            outputs=tuple(changed),
            repeated=tuple(name for name in seen.outputs if name not in changed),
            comparisons=seen.comparisons,
            vitals=vitals,
        )
        return reply, list(changed.values())

    def _changed(self, launchable: int, seen: Inspection) -> dict[str, bytes]:
        """The outputs that are not as the launchable's last such burst left them."""
        sent = self._sent.get(launchable, {})
        self._sent[launchable] = seen.outputs
        return {name: held for name, held in seen.outputs.items() if sent.get(name) != held}

    def _measure_energy(self, request: MeasureEnergy) -> EnergyMeasured:
        device, (launchable, buffer_sets) = self._device, self._launchables[request.launchable]

        def read() -> float:
            found = device.millijoules() if isinstance(device, EnergyMeter) else None
            if found is None:
                raise EnvironmentProblem(_NO_COUNTER)
            return found

        last = read()
        assert isinstance(launchable, RepeatingLaunchable)
        buffer_sets.restore(request.order, request.poison)
        began = time.perf_counter_ns()
        readings: list[EnergyReading] = []

        def go_on(launches: int) -> bool:
            nonlocal last
            now, ns = read(), float(time.perf_counter_ns() - began)
            if now != last and ns / 1e9 >= request.settle:
                readings.append(EnergyReading(millijoules=now, launches=launches, ns=ns))
            last = now
            seconds = (readings[-1].ns - readings[0].ns) / 1e9 if readings else 0.0
            waits = ns / 1e9 < request.at_most or launches < REPEATS * len(request.order)
            return seconds < request.seconds and waits

        launchable.repeat(request.order, go_on)
        return EnergyMeasured(readings=tuple(readings), vitals=device.vitals())

    def _release(self, request: Release) -> None:
        for handle in request.handles:
            if handle in self._launchables:
                self._sent.pop(handle, None)
                self._launchables.pop(handle)[0].release()
            elif handle in self._modules:
                self._modules.pop(handle).release()
            elif handle in self._buffer_sets:
                self._buffer_sets.pop(handle).release()


def _inspection(
    buffer_sets: BufferSets, asked: RunBurst | InspectSet, expected: Mapping[str, Expected]
) -> Inspection:
    """What is found in the set to inspect, and of damage in idle ones."""
    damage = buffer_sets.touched(asked.idle) if asked.idle else None
    if asked.inspect is None:
        return Inspection(damage=damage, outputs={}, comparisons={})
    seen = buffer_sets.inspect(asked.inspect, expected, asked.parts)
    return replace(seen, damage=damage or seen.damage)


def main(channel: Channel, arguments: Sequence[str]) -> None:
    """Serve until the channel closes."""
    module, index = arguments
    server = _Server(load(module), int(index), lambda: channel.send(MARK))
    channel.send(b"ready")
    while True:
        try:
            text, blobs = channel.receive(1 << 32)
        except ChannelClosed:
            return
        code = iter(blobs)
        for request in REQUESTS.validate_json(text):
            reply, answers = server.answer(request, code)
            channel.send(REPLY.dump_json(reply), answers)
            if isinstance(reply, Failed | Broken):
                break
