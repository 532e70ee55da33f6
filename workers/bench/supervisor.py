"""The parent's side of one bench child: requests with deadlines, and failures classified by code.

Owns the child's process and what its death means. Knows nothing of experiments: what to stage,
launch and expect is told by :mod:`workers.bench.session`.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Code
from workers.backends.registry import module_of
from workers.bench import protocol
from workers.comparison import Expected
from workers.devices.port import (
    DeviceFailure,
    Inspection,
    Rotation,
    Staged,
    StagedBuffer,
    StagedNull,
    StagedScalar,
)
from workers.process import Child, ChildFailed

_CODES: Mapping[str, Code] = {
    "hung": Code.HANG,
    "memory": Code.OUT_OF_MEMORY,
    "died": Code.CRASH,
    "killed": Code.CRASH,
    "garbage": Code.CRASH,
}
_REPLY_LIMIT = 1 << 36

CLOCKS_DIFFER, CLOCK_NS = 0.01, 100_000
"""How far a device's clock may run ahead of the host's: a share, and nanoseconds."""

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """Launches of one go, the slowest of ``deadline`` seconds at most, and the set to look at then.

    What is ``expected`` of its outputs is compared in the child, the others are handed out. With
    ``watch`` the device itself is looked at, too. The sets ``also`` are restored besides those that
    are launched on or looked at.
    """

    launchable: int
    order: Sequence[int]
    poison: int | None
    deadline: float
    inspect: int | None = None
    expected: Mapping[str, Expected] = field(default_factory=dict)
    watch: bool = False
    also: tuple[int, ...] = ()


class Seen(NamedTuple):
    """Of a shot: nanoseconds for each launch, or one for all; what was looked at, if anything."""

    times: tuple[float, ...]
    inspection: Inspection | None
    vitals: Vitals | None


class LostChild(DeviceFailure):
    """The child is gone, and what is asked now need not be why.

    Somebody killed it, or what was asked before failed after its outcome had been told.
    """


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, its blobs, and how many seconds its answer may take."""

    request: protocol.Request
    blobs: Sequence[bytes]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long the child may take, in seconds.

    A launch has ``max(launch, factor × baseline)``; where the driver compiles at the first launch
    (OpenCL) it has ``first`` for that; what launches nothing has ``control``. In a burst,
    every launch but one has ``slower`` times as long as the kernel's slowest one so far, so that a
    hang costs little more than one launch's deadline.
    """

    launch: float = 1.0
    factor: float = 200.0
    slower: float = 10.0
    first: float = 20.0
    control: float = 60.0

    def of(self, baseline_ns: float) -> float:
        """For a launch of a kernel whose baseline takes so long."""
        return max(self.launch, self.factor * baseline_ns * 1e-9)

    def burst(self, slowest: float, launches: int, seen_ns: float) -> float:
        """For launches that may be so slow, of a kernel that took ``seen_ns``, 0 if unknown."""
        others = min(slowest, self.slower * seen_ns * 1e-9) if seen_ns else slowest
        return slowest + others * (launches - 1)


class Supervisor:
    """One device server in a child process. Every failure is a :class:`DeviceFailure`.

    After a sticky one the child is gone with every handle; the next request starts another.
    """

    def __init__(
        self, backend: str, index: int, deadlines: Deadlines, environment: Mapping[str, str]
    ) -> None:
        self._child = Child(
            "workers.bench.child", [module_of(backend), str(index)], environment=environment
        )
        self._deadlines = deadlines
        self._handles = itertools.count()
        self._held: list[_Asked] = []
        self._owed: list[_Asked] = []

    @property
    def closed(self) -> bool:
        """Whether it was ended for good."""
        return self._child.closed

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._child.pid

    def start(self) -> None:
        """Start the child if none runs.

        Raises:
            EnvironmentProblem: it does not start.
        """
        try:
            self._child.start()
        except ChildFailed as failure:
            raise EnvironmentProblem(f"the bench process does not start: {failure}") from None

    def describe(self) -> tuple[Device, str]:
        """The device and its identity."""
        reply = self._expect(protocol.Described, protocol.Describe())
        return reply.device, reply.identity

    def rotation(
        self, size: int, cache: Cache, warmup: int, repeats: int, *, in_place: bool = False
    ) -> Rotation:
        """How to time a case of ``size`` bytes."""
        request = protocol.PlanRotation(
            size=size, cache=cache, warmup=warmup, repeats=repeats, in_place=in_place
        )
        return self._expect(protocol.Rotated, request).rotation

    def stage(self, arguments: Sequence[Staged], sets: int) -> int:
        """Stage a case; returns its handle."""
        handle = next(self._handles)
        self._tell(
            protocol.Stage(
                case=handle,
                buffers=tuple(a for a in arguments if isinstance(a, StagedBuffer)),
                scalars=tuple(a for a in arguments if isinstance(a, StagedScalar)),
                nulls=tuple(a for a in arguments if isinstance(a, StagedNull)),
                sets=sets,
            )
        )
        return handle

    def refill(self, case: int, contents: Mapping[str, str]) -> None:
        """Write new contents into a case, before anything else is done."""
        self._hold(protocol.Refill(case=case, contents=dict(contents)), self._deadlines.control)

    def load(self, binaries: Sequence[Binary]) -> int:
        """Load binaries; returns the module's handle. It fails at the next request."""
        handle = next(self._handles)
        heads = tuple(replace(binary, code=b"") for binary in binaries)
        request = protocol.Load(module=handle, binaries=heads)
        self._hold(request, self._deadlines.control, [b.code for b in binaries])
        return handle

    def bind(self, module: int, cell: CellPlan, case: int) -> int:
        """Bind a cell to a case; returns the launchable's handle. It fails at the next request."""
        handle = next(self._handles)
        request = protocol.Bind(launchable=handle, module=module, cell=cell, case=case)
        self._hold(request, self._deadlines.control)
        return handle

    def awaken(self, launchable: int, index: int, poison: int) -> None:
        """Have the driver compile what it compiles at a first launch, before the next request."""
        request = protocol.Awaken(launchable=launchable, index=index, poison=poison)
        self._hold(request, self._deadlines.first)

    def fire(
        self, shots: Sequence[Shot], slowest_ns: float = 0.0, *, apart: bool = False
    ) -> Iterator[Seen]:
        """Of each in turn: restore, launch in order, look at one set if asked.

        All are carried out before the first is told of, so that the device waits for nobody; the
        first that fails is the last. With ``apart`` each waits for the one before, and the child is
        told what to look at when the launches are over; nothing is compared there.

        Args:
            shots: of one kernel on one shape.
            slowest_ns: what its slowest launch so far took, 0 if there was none.
            apart: for kernels that share the child's memory.
        """
        if not apart:
            yield from self._together(shots, slowest_ns)
            return
        for shot in shots:
            unseen = replace(shot, inspect=None, also=_whole(shot))
            (seen,) = self._together([unseen], slowest_ns)
            slowest_ns = max([slowest_ns, *seen.times])
            yield seen if shot.inspect is None else self._looked(shot, seen)

    def _together(self, shots: Sequence[Shot], slowest_ns: float) -> Iterator[Seen]:
        requests = [
            protocol.Fire(
                launchable=shot.launchable,
                order=tuple(shot.order),
                restored=_whole(shot),
                poison=shot.poison,
                inspect=shot.inspect,
                expected=dict(shot.expected),
                watch=shot.watch,
            )
            for shot in shots
        ]
        self._ask(requests, max(shot.deadline for shot in shots))
        answers: list[tuple[protocol.Reply, list[bytes]] | DeviceFailure] = []
        try:
            for shot in shots:
                launches = len(shot.order)
                deadline = self._deadlines.burst(shot.deadline, launches, slowest_ns)
                reply, blobs = self._receive(deadline)
                answers.append((reply, blobs))
                if isinstance(reply, protocol.Fired):
                    slowest_ns = max([slowest_ns, *reply.times])
        except DeviceFailure as failure:
            answers.append(failure)
        for shot, answer in zip(shots, answers, strict=False):
            if isinstance(answer, DeviceFailure):
                raise answer
            yield self._fired(shot, *answer)

    def release(self, *handles: int) -> None:
        """Release cases, modules and launchables, in order, while nobody waits.

        Where that fails, the next request does, with a :class:`LostChild`.
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
        self._child.close(grace=0.0)

    def flush(self) -> None:
        """Have done now what would be with the next request."""
        self._ask((), self._deadlines.control)

    def _fired(self, shot: Shot, reply: protocol.Reply, blobs: Sequence[bytes]) -> Seen:
        if not isinstance(reply, protocol.Fired):
            raise self._lost("the bench child answered something else")
        outputs = self._outputs(reply, blobs)
        _agree(reply.times, len(shot.order), reply.host_ns)
        inspection = None
        if shot.inspect is not None:
            inspection = Inspection(
                damage=reply.damage, outputs=outputs, comparisons=reply.comparisons
            )
        return Seen(reply.times, inspection, reply.vitals)

    def _looked(self, shot: Shot, seen: Seen) -> Seen:
        """What was seen of a shot, with the look at it that was not announced."""
        assert shot.inspect is not None
        request = protocol.Look(launchable=shot.launchable, index=shot.inspect)
        reply, blobs = self._answer(protocol.Looked, request)
        outputs = self._outputs(reply, blobs)
        inspection = Inspection(damage=reply.damage, outputs=outputs, comparisons={})
        return seen._replace(inspection=inspection)

    def _outputs(
        self, reply: protocol.Fired | protocol.Looked, blobs: Sequence[bytes]
    ) -> dict[str, bytes]:
        """What was handed out, by the arguments' names."""
        if len(reply.outputs) != len(blobs):
            raise self._lost("the bench child answered something else")
        return dict(zip(reply.outputs, blobs, strict=True))

    def _hold(
        self, request: protocol.Request, deadline: float, blobs: Sequence[bytes] = ()
    ) -> None:
        """Send it with the next request, in front of it; then its failure comes too."""
        self._held.append(_Asked(request, blobs, deadline))

    def _tell(self, request: protocol.Request) -> None:
        self._expect(protocol.Done, request)

    def _expect(self, kind: type[_R], request: protocol.Request) -> _R:
        return self._answer(kind, request)[0]

    def _answer(self, kind: type[_R], request: protocol.Request) -> tuple[_R, list[bytes]]:
        self._ask([request], self._deadlines.control)
        reply, blobs = self._receive(self._deadlines.control)
        if not isinstance(reply, kind):
            raise self._lost("the bench child answered something else")
        return reply, blobs

    def _ask(self, requests: Sequence[protocol.Request], timeout: float) -> None:
        """Send in one frame what is held and what is asked; wait for all but the latter."""
        held, self._held = self._held, []
        owed, self._owed = self._owed, []
        asked = [_Asked(request, (), timeout) for request in requests]
        patience = max([timeout, *(one.deadline for one in (*owed, *held))])
        try:
            self._send([*held, *asked], patience)
            for one in owed:
                self._done(one)
        except (ChildFailed, DeviceFailure) as failure:
            self._child.kill()
            lost = _dead(failure) if isinstance(failure, ChildFailed) else failure
            raise (LostChild(lost.code, lost.detail, sticky=True) if owed else lost) from None
        for one in held:
            self._done(one)

    def _send(self, asked: Sequence[_Asked], timeout: float) -> None:
        """In one frame, each part within so many seconds. Raises :class:`ChildFailed`."""
        if not asked:
            return
        self.start()
        self._child.send(
            protocol.encode_requests([one.request for one in asked]),
            [blob for one in asked for blob in one.blobs],
            timeout=timeout,
        )

    def _done(self, asked: _Asked) -> None:
        if not isinstance(self._receive(asked.deadline)[0], protocol.Done):
            raise self._lost("the bench child answered something else")

    def _receive(self, deadline: float) -> tuple[protocol.Reply, list[bytes]]:
        try:
            text, answers = self._child.receive(timeout=deadline, limit=_REPLY_LIMIT)
            reply = protocol.decode_reply(text)
        except ChildFailed as failure:
            raise _dead(failure) from None
        except ValueError as error:
            raise self._lost(f"the bench child sent {error}") from None
        if isinstance(reply, protocol.Broken):
            raise EnvironmentProblem(reply.detail)
        if isinstance(reply, protocol.Failed):
            if reply.sticky:
                self._child.kill()
            raise DeviceFailure(reply.code, reply.detail, sticky=reply.sticky)
        return reply, answers

    def _lost(self, detail: str) -> DeviceFailure:
        self._child.kill()
        return DeviceFailure(Code.CRASH, detail, sticky=True)


def _whole(shot: Shot) -> tuple[int, ...]:
    """The sets that a shot restores: those launched on, the one looked at, and any others."""
    watched = () if shot.inspect is None else (shot.inspect,)
    return tuple(sorted({*shot.order, *watched, *shot.also}))


def _dead(failure: ChildFailed) -> DeviceFailure:
    kind = LostChild if failure.how == "killed" else DeviceFailure
    return kind(_CODES[failure.how], failure.detail, sticky=True)


def _agree(times: Sequence[float], launches: int, host_ns: float) -> None:
    """Refuse times that are none, or that say more than passed on the host's clock."""
    if len(times) not in (1, launches) or not all(math.isfinite(t) and t > 0 for t in times):
        raise DeviceFailure(Code.IMPOSSIBLE_TIME, f"the device reports times of {times[:3]} ns")
    total = sum(times) * launches / len(times)
    if not total <= host_ns * (1 + CLOCKS_DIFFER) + CLOCK_NS:
        detail = (
            f"the device reports {total:.0f} ns for launches that the host saw in {host_ns:.0f}"
        )
        raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)
