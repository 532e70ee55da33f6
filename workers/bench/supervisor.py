"""The parent's side of one bench child: requests with deadlines, failures classified by code.

Owns the child's process and what its death means. Knows no experiment.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Code
from workers.backends.registry import module_of, preloaded_modules
from workers.bench import protocol
from workers.bench.deadlines import Deadlines
from workers.bench.idleness import keeps_running
from workers.channel import Frame
from workers.confinement import device_sandbox
from workers.devices.port import DeviceFailure, Inspection, Rotation, Staged
from workers.forking import ChildFailed
from workers.integrity.time_bounds import refuse_implausible
from workers.process import Child
from workers.scratch import runtime_directory

_CODES: Mapping[str, Code] = {"hung": Code.HANG, "memory": Code.OUT_OF_MEMORY}
"""Of a child's endings; all others are crashes."""
_REPLY_LIMIT = 1 << 36
_ENERGY_PATIENCE = 5.0
"""How many times as long as it should take an energy counter is waited for."""
_WRONG_REPLY = "the bench child sent an unexpected reply"

_R = TypeVar("_R")


class BurstResult(NamedTuple):
    """Nanoseconds of each launch, or one mean; the inspection and the device's state, if any.

    ``wall_ns`` is how long all launches took on the host's clock.
    """

    times: tuple[float, ...]
    wall_ns: float
    inspection: Inspection | None
    vitals: Vitals | None


class ChildLost(DeviceFailure):
    """The child is gone, and the current request need not be the cause.

    It was killed externally, or an earlier request failed after it had been answered.
    """


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request, its blobs, and how many seconds its answer may take."""

    request: protocol.Request
    blobs: Sequence[bytes]
    deadline: float


class Supervisor:
    """One device server in a child process. Failures are :class:`DeviceFailure`.

    After a sticky one the child is gone with every handle; the next request starts another. A child
    that is lost with its fork server raises :class:`ChildFailed`: the candidate is not to blame.
    """

    def __init__(self, backend: str, index: int, deadlines: Deadlines, folder: Path) -> None:
        """The child may write to ``folder``, and read where cases are kept."""
        self._child = Child(
            "workers.bench.child",
            [module_of(backend), str(index)],
            preload=preloaded_modules(backend),
            sandbox=device_sandbox(backend, folder, readable=(runtime_directory(),)),
        )
        self._deadlines = deadlines
        self._handles = itertools.count()
        self._held: list[_Pending] = []
        self._owed: list[_Pending] = []

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._child.closed

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._child.pid

    def start(self) -> None:
        """Start the child if none runs; raises as :meth:`Child.begin`."""
        self._child.begin("bench process")

    def describe(self) -> tuple[Device, str]:
        """The device and its identity."""
        reply = self._expect(protocol.Described, protocol.Describe())
        return reply.device, reply.identity

    def rotation(self, size: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """How to time a shape whose buffers take ``size`` bytes."""
        request = protocol.PlanRotation(size=size, cache=cache, warmup=warmup, repeats=repeats)
        return self._expect(protocol.Rotated, request).rotation

    def stage(self, arguments: Sequence[Staged], sets: int) -> int:
        """Stage a shape's arguments; returns a handle."""
        handle = next(self._handles)
        self._expect(
            protocol.Done,
            protocol.StageBuffers(
                buffer_sets=handle,
                arguments=tuple(arguments),
                sets=sets,
            ),
        )
        return handle

    def refill(self, buffer_sets: int, contents: Mapping[str, str]) -> None:
        """Write new contents before the next request."""
        self._hold(
            protocol.Refill(buffer_sets=buffer_sets, contents=dict(contents)),
            self._deadlines.control,
        )

    def load(self, binaries: Sequence[Binary]) -> int:
        """Load binaries; returns a handle. A failure comes with the next request."""
        handle = next(self._handles)
        heads = tuple(replace(binary, code=b"") for binary in binaries)
        request = protocol.Load(module=handle, binaries=heads)
        self._hold(request, self._deadlines.control, [b.code for b in binaries])
        return handle

    def bind(self, module: int, cell: CellPlan, buffer_sets: int) -> int:
        """Bind a cell; returns a handle. A failure comes with the next request."""
        handle = next(self._handles)
        request = protocol.Bind(
            launchable=handle, module=module, cell=cell, buffer_sets=buffer_sets
        )
        self._hold(request, self._deadlines.control)
        return handle

    def trigger_compile(self, launchable: int, index: int, poison: int) -> None:
        """Have the driver compile for a first launch, before the next request."""
        request = protocol.TriggerCompile(launchable=launchable, index=index, poison=poison)
        self._hold(request, self._deadlines.first)

    def run_bursts(
        self, requests: Sequence[protocol.RunBurst], slowest_ns: float = 0.0, *, apart: bool = False
    ) -> Iterator[BurstResult]:
        """For each in turn: restore, launch, inspect a set if requested.

        All run before the first result is yielded, so that the device never waits; the first
        failure is the last result. With ``apart``, for kernels that share the child's memory, each
        waits for the one before, the child learns which set to inspect after the launches, and
        compares nothing. All are of one kernel on one shape, where its slowest launch so far took
        ``slowest_ns``; 0 if there was none.
        """
        if not apart:
            yield from self._together(requests, slowest_ns)
            return
        for one in requests:
            unseen = replace(one, inspect=None, idle=(), parts={}, decoy_sets=one.restored)
            (seen,) = self._together([unseen], slowest_ns)
            slowest_ns = max([slowest_ns, *seen.times])
            yield self._with_inspection(one, seen) if one.inspects else seen

    def _together(
        self, requests: Sequence[protocol.RunBurst], slowest_ns: float
    ) -> Iterator[BurstResult]:
        self._ask(requests, max(one.deadline for one in requests))
        answers: list[tuple[protocol.BurstReply, list[bytes], float] | DeviceFailure] = []
        try:
            for one in requests:
                found = self._receive_burst(self._seconds(one, len(one.order), slowest_ns))
                answers.append(found)
                slowest_ns = max([slowest_ns, *found[0].times])
        except DeviceFailure as failure:
            answers.append(failure)
        before: dict[str, bytes] = {}
        for one, answer in zip(requests, answers, strict=False):
            if isinstance(answer, DeviceFailure):
                raise answer
            reply, blobs, wall_ns = answer
            if not set(reply.repeated) <= (before.keys() if one.changed_only else set()):
                raise self._lost(_WRONG_REPLY)
            before = self._outputs(reply, blobs) | {name: before[name] for name in reply.repeated}
            refuse_implausible(reply.times, len(one.order), reply.host_ns)
            seen = Inspection(damage=reply.damage, outputs=before, comparisons=reply.comparisons)
            inspection = seen if one.inspects else None
            yield BurstResult(reply.times, wall_ns, inspection, reply.vitals)

    def _seconds(self, one: protocol.RunBurst, launches: int, slowest_ns: float) -> float:
        """How long so many launches may take."""
        return self._deadlines.burst(one.deadline, one.other_deadline, launches, slowest_ns)

    def launch_ahead(self, one: protocol.RunBurst, slowest_ns: float = 0.0) -> None:
        """Restore and launch before the next request, with which a failure comes.

        Nothing is inspected, and its times are of no interest.
        """
        self._hold(one, self._seconds(one, len(one.order), slowest_ns))

    def measure_energy(
        self, one: protocol.RunBurst, settle: float, seconds: float, slowest_ns: float
    ) -> protocol.EnergyMeasured:
        """Repeat a burst for so many seconds, and read the device's energy counter meanwhile.

        Not in the first seconds, in which it is to ``settle``.

        Raises:
            EnvironmentProblem: it has none.
        """
        request = protocol.MeasureEnergy(
            launchable=one.launchable,
            order=one.order,
            poison=one.poison,
            settle=settle,
            seconds=seconds,
            at_most=settle + _ENERGY_PATIENCE * seconds,
        )
        launches = 2 * protocol.REPEATS * len(one.order)  # some are queued ahead
        deadline = self._seconds(one, launches, slowest_ns) + 2 * request.at_most
        self._ask([request], deadline)
        reply, _ = self._receive(deadline)
        if not isinstance(reply, protocol.EnergyMeasured):
            raise self._lost(_WRONG_REPLY)
        return reply

    def release(self, *handles: int) -> None:
        """Release handles in order, without waiting.

        A failure comes with the next request, as a :class:`ChildLost`.
        """
        self._hold(protocol.Release(handles=handles), self._deadlines.control)
        held, self._held = self._held, []
        try:
            self._send(held, self._deadlines.control)
        except ChildFailed as failure:
            raise _dead(failure) from None
        self._owed += held

    def kill(self) -> None:
        """End the child at once, with every handle; the next request starts another."""
        self._held, self._owed = [], []
        self._child.kill()

    def close(self) -> None:
        """End the child for good. Safe to call twice, and from another thread to abort."""
        self._child.close()

    def flush(self) -> None:
        """Carry out now what waits for the next request."""
        self._ask((), self._deadlines.control)

    def expect_idle(self) -> None:
        """Check that no thread of the child runs on after its launches; raises a sticky failure."""
        if self.pid is not None and keeps_running(self.pid):
            self._child.kill()
            detail = "a thread goes on with work after its launch has ended"
            raise DeviceFailure(Code.HANG, detail, sticky=True)

    def _with_inspection(self, one: protocol.RunBurst, seen: BurstResult) -> BurstResult:
        """The result with the inspection that the child was not told of before."""
        request = protocol.InspectSet(
            launchable=one.launchable, inspect=one.inspect, idle=one.idle, parts=one.parts
        )
        reply, blobs = self._answer(protocol.SetInspected, request)
        outputs = self._outputs(reply, blobs)
        inspection = Inspection(damage=reply.damage, outputs=outputs, comparisons={})
        return seen._replace(inspection=inspection)

    def _outputs(
        self, reply: protocol.BurstReply | protocol.SetInspected, blobs: Sequence[bytes]
    ) -> dict[str, bytes]:
        """The returned outputs by argument."""
        if len(reply.outputs) != len(blobs):
            raise self._lost(_WRONG_REPLY)
        return dict(zip(reply.outputs, blobs, strict=True))

    def _hold(
        self, request: protocol.Request, deadline: float, blobs: Sequence[bytes] = ()
    ) -> None:
        """Send it in front of the next request, with which its failure comes."""
        self._held.append(_Pending(request, blobs, deadline))

    def _expect(self, kind: type[_R], request: protocol.Request) -> _R:
        return self._answer(kind, request)[0]

    def _answer(self, kind: type[_R], request: protocol.Request) -> tuple[_R, list[bytes]]:
        self._ask([request], self._deadlines.control)
        reply, blobs = self._receive(self._deadlines.control)
        if not isinstance(reply, kind):
            raise self._lost(_WRONG_REPLY)
        return reply, blobs

    def _ask(self, requests: Sequence[protocol.Request], timeout: float) -> None:
        """Send what is held and these requests in one frame; wait for all but the latter."""
        held, self._held = self._held, []
        owed, self._owed = self._owed, []
        asked = [_Pending(request, (), timeout) for request in requests]
        patience = max([timeout, *(one.deadline for one in (*owed, *held))])
        try:
            self._send([*held, *asked], patience)
            for one in owed:
                self._done(one)
        except (ChildFailed, DeviceFailure) as failure:
            self._child.kill()
            lost = _dead(failure) if isinstance(failure, ChildFailed) else failure
            if owed and isinstance(lost, DeviceFailure):
                lost = ChildLost(lost.code, lost.detail, sticky=True)
            raise lost from None
        for one in held:
            self._done(one)

    def _send(self, asked: Sequence[_Pending], timeout: float) -> None:
        """In one frame, each part within so many seconds. Raises :class:`ChildFailed`."""
        if not asked:
            return
        self.start()
        self._child.send(
            protocol.REQUESTS.dump_json([one.request for one in asked]),
            [blob for one in asked for blob in one.blobs],
            timeout=timeout,
        )

    def _done(self, asked: _Pending) -> None:
        if isinstance(asked.request, protocol.RunBurst):
            self._receive_burst(asked.deadline)
        elif not isinstance(self._receive(asked.deadline)[0], protocol.Done):
            raise self._lost(_WRONG_REPLY)

    def _receive_burst(self, deadline: float) -> tuple[protocol.BurstReply, list[bytes], float]:
        """The reply to a burst, its outputs, and the nanoseconds between its marks."""
        sent: list[int] = []
        for _ in range(2):
            text, _ = self._frame(deadline)
            sent.append(self._child.sent_ns)
            if text != protocol.MARK:
                self._decoded(text)
                raise self._lost(_WRONG_REPLY)
        reply, blobs = self._receive(deadline)
        if not isinstance(reply, protocol.BurstReply):
            raise self._lost(_WRONG_REPLY)
        return reply, blobs, float(sent[1] - sent[0])

    def _receive(self, deadline: float) -> tuple[protocol.Reply, list[bytes]]:
        text, answers = self._frame(deadline)
        return self._decoded(text), answers

    def _frame(self, deadline: float) -> Frame:
        try:
            return self._child.receive(timeout=deadline, limit=_REPLY_LIMIT)
        except ChildFailed as failure:
            raise _dead(failure) from None

    def _decoded(self, text: bytes) -> protocol.Reply:
        """The reply in a frame; a failure is raised."""
        try:
            reply = protocol.decode_reply(text)
        except ValueError as error:
            raise self._lost(f"the bench child sent {error}") from None
        if isinstance(reply, protocol.Broken):
            raise EnvironmentProblem(reply.detail)
        if isinstance(reply, protocol.Failed):
            if reply.sticky:
                self._child.kill()
            raise DeviceFailure(reply.code, reply.detail, sticky=reply.sticky)
        return reply

    def _lost(self, detail: str) -> DeviceFailure:
        self._child.kill()
        return DeviceFailure(Code.CRASH, detail, sticky=True)


def _dead(failure: ChildFailed) -> DeviceFailure | ChildFailed:
    if failure.how == "lost":
        return failure
    kind = ChildLost if failure.how == "killed" else DeviceFailure
    return kind(_CODES.get(failure.how, Code.CRASH), failure.detail, sticky=True)
