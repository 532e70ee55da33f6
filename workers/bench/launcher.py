"""Launches bursts of loaded candidates on staged shapes.

Owns the binding to buffers, what outputs hold before a burst, deadlines, and decoy buffer sets.
Knows no right answer.
"""

import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.backends.registry import traits_of
from tuner.candidate import Candidate
from tuner.plan import CellPlan
from tuner.telemetry import Vitals
from workers.bench.bursts import Burst, pick
from workers.bench.deadlines import Deadlines
from workers.bench.preparation import Preparation
from workers.bench.protocol import RunBurst
from workers.bench.staged_shapes import StagedShapes, StagingKey
from workers.bench.supervisor import BurstResult, Supervisor
from workers.comparison import Expected
from workers.devices.port import EnergyReading, LateWrite, OtherContents, OwnInputs
from workers.devices.staging import buffer_bytes

_POISONS = ((0xFF, 0x7F, 0xFE, 0x7E), (0x3C, 0x3F, 0xBD, 0x2E))
"""Bytes that make a NaN or a huge number of every float type, and bytes that make ordinary ones.

Used in turn. The first fail a kernel that reads its output, the second one that leaves alone what
looks like an answer: where a burst launches on a set twice, such a kernel would be timed idle.
"""

_RECORDED = 16
"""Timed bursts whose times on two clocks are kept."""

_QUICK = 8
"""Of so many bursts one is quick."""


@dataclass(slots=True)
class LoadedCandidate:
    """A candidate loaded into the child.

    ``launchables`` are bound at first use. On shapes in ``compiling`` the launch that made the
    driver compile may still run. Timed again on so many sets of a shape, it is launched in the same
    of its ``orders``. By shape, a launch took up to ``slowest_ns`` so far, and ``clocks`` has
    nanoseconds per launch of the last bursts: by the device's clock, and by the host's.
    """

    candidate: Candidate
    module: int
    launchables: dict[StagingKey, int] = field(default_factory=dict)
    compiling: set[int] = field(default_factory=set)
    slowest_ns: dict[int, float] = field(default_factory=dict)
    orders: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    clocks: dict[int, deque[tuple[float, float]]] = field(default_factory=dict)

    def record(self, shape: int, burst: Burst, times: Sequence[float], wall_ns: float) -> None:
        """Note the times of a burst, on two clocks if it is timed."""
        self.slowest_ns[shape] = max(self.slowest_ns.get(shape, 0.0), *times)
        if burst.timed:
            recorded = self.clocks.setdefault(shape, deque(maxlen=_RECORDED))
            recorded.append((statistics.fmean(times), wall_ns / len(burst.order)))

    def usual_ns(self, shape: int) -> float:
        """Nanoseconds of a launch, by the device's clock, in most of the last timed bursts."""
        return statistics.median(reported for reported, _ in self.clocks[shape])

    def unreported_more(self, other: "LoadedCandidate", shape: int) -> float:
        """How much more unreported time a launch takes than another's, in nanoseconds; 0 at least.

        A host only lengthens what its clock shows: it wakes a thread late, in few bursts or in
        most. So this kernel's quick bursts are compared with the middle one of the other's. Both
        vary for the same reasons, and nothing follows from a difference within their scatter. A
        burst that is also reported as slow excuses no others: each counts with all its time on the
        host's clock, beyond what is reported for most.
        """
        own, others = self.clocks.get(shape), other.clocks.get(shape)
        if not own or not others:
            return 0.0
        quick_ns = sorted(wall for _, wall in own)[len(own) // _QUICK]
        other_ns = statistics.median(wall - reported for reported, wall in others)
        return max(0.0, quick_ns - self.usual_ns(shape) - max(0.0, other_ns))

    def late_writes(self, shape: int) -> list[LateWrite]:
        """The late writes that its dependent launches on a shape must wait for."""
        cell = self.candidate.plan.cells[shape]
        steps = cell.dependent_steps if isinstance(cell, CellPlan) else ()
        return [LateWrite(step=n, stale=stale) for n in steps for stale in ("zeros", "rotated")]


class Launcher:
    """Launches on ``shapes`` that are staged in a child.

    ``vitals`` is the device's state when it was last read; ``rng`` chooses poisons and decoys.
    """

    def __init__(
        self,
        server: Supervisor,
        shapes: StagedShapes,
        prep: Preparation,
        deadlines: Deadlines,
        rng: np.random.Generator,
    ) -> None:
        self._server = server
        self._shapes = shapes
        self._prep = prep
        self._deadlines = deadlines
        self._rng = rng
        self._ordinary = bool(rng.integers(2))
        self.vitals: Vitals | None = None

    def run(
        self,
        loaded: LoadedCandidate,
        shape: int,
        bursts: Sequence[Burst],
        expected: Mapping[str, Expected],
        *,
        read_telemetry: bool = False,
    ) -> Iterator[tuple[RunBurst, BurstResult]]:
        """Run bursts on one shape in order; yields what was asked, and the answer.

        A GPU compares outputs that are ``expected`` itself. With ``read_telemetry`` the device's
        state is read after the last burst.
        """
        requests = [
            self._request(
                loaded,
                shape,
                burst,
                expected,
                read_telemetry=read_telemetry and burst is bursts[-1],
            )
            for burst in bursts
        ]
        slowest_ns = loaded.slowest_ns.get(shape, 0.0)
        results = self._server.run_bursts(requests, slowest_ns, apart=self._prep.device.is_cpu)
        for burst, request, seen in zip(bursts, requests, results, strict=True):
            if read_telemetry:
                self.vitals = seen.vitals
            loaded.record(shape, burst, seen.times, seen.wall_ns)
            yield request, seen

    def repeat(
        self,
        loaded: LoadedCandidate,
        shape: int,
        burst: Burst,
        settle: float,
        seconds: float,
    ) -> tuple[EnergyReading, ...]:
        """Repeat a burst: readings of the energy counter for so many seconds, once it settled.

        Raises:
            EnvironmentProblem: it has none.
        """
        request = self._request(loaded, shape, burst, {})
        slowest_ns = loaded.slowest_ns.get(shape, 0.0)
        found = self._server.measure_energy(request, settle, seconds, slowest_ns)
        self.vitals = found.vitals
        return found.readings

    def run_ahead(self, loaded: LoadedCandidate, shape: int, burst: Burst) -> None:
        """Run a burst that is not inspected; on a GPU along with the next one, to save an answer.

        A failure then comes with that.
        """
        if self._prep.device.is_cpu:
            deque(self.run(loaded, shape, [burst], {}), maxlen=0)
            return
        request = self._request(loaded, shape, burst, {})
        self._server.launch_ahead(request, loaded.slowest_ns.get(shape, 0.0))

    def _request(
        self,
        loaded: LoadedCandidate,
        shape: int,
        burst: Burst,
        expected: Mapping[str, Expected],
        *,
        read_telemetry: bool = False,
    ) -> RunBurst:
        key = shape, burst.exact
        changed = self._shapes[key].changed
        other: OtherContents | OwnInputs | None = None
        if burst.seed is not None:
            told = None if self._prep.device.is_cpu else burst.inspect
            other = OwnInputs(seed=burst.seed, set_index=told)
        elif burst.mixed and burst.inspect is not None and changed is not None:
            other = OtherContents(set_index=burst.inspect, contents=changed.contents)
            expected = changed.expected
        return RunBurst(
            launchable=self._bound(loaded, key),
            order=burst.order,
            poison=None if burst.keep_outputs else self._poison(),
            deadline=self._deadline(loaded, shape),
            other_deadline=self._other_deadline(shape),
            inspect=burst.inspect,
            parts=burst.parts,
            expected={} if self._prep.device.is_cpu or burst.inspect is None else expected,
            read_telemetry=read_telemetry,
            idle=burst.idle,
            decoy_sets=() if burst.keep_outputs else self._decoy(key, burst),
            other=other,
            late=burst.late,
            forgets=burst.forgets,
        )

    def _bound(self, loaded: LoadedCandidate, key: StagingKey) -> int:
        if key not in loaded.launchables:
            shape, exact = key
            cell = loaded.candidate.plan.cells[shape]
            assert isinstance(cell, CellPlan)
            least = self._shapes.least_align(exact)
            scratch = tuple(replace(s, align=max(s.align, least)) for s in cell.scratch)
            loaded.launchables[key] = self._server.bind(
                loaded.module, replace(cell, scratch=scratch), self._shapes[key].handle
            )
            compiles = traits_of(self._prep.device.backend).compiles_at_first_launch
            if compiles and (shape, not exact) not in loaded.launchables:
                self._server.trigger_compile(loaded.launchables[key], 0, _POISONS[0][0])
                loaded.compiling.add(shape)
        return loaded.launchables[key]

    def _deadline(self, loaded: LoadedCandidate, shape: int) -> float:
        """Seconds for a launch, and for one that may still run before it.

        They follow from the baseline's time, on shapes that are not timed from its slowest, and
        from the size of what a mixed burst writes before it.
        """
        launches = 1 + (shape in loaded.compiling)
        loaded.compiling.discard(shape)
        known = self._prep.baseline_ns
        if shape in self._prep.timed and shape not in known:
            return launches * self._deadlines.control
        baseline_ns = known.get(shape) or max(known.values())
        return launches * self._deadlines.of(baseline_ns, buffer_bytes(self._prep.arguments[shape]))

    def _other_deadline(self, shape: int) -> float | None:
        """Seconds for all launches of a burst but one, once the baseline's time is known."""
        baseline_ns = self._prep.baseline_ns.get(shape)
        return None if baseline_ns is None else self._deadlines.other(baseline_ns)

    def _poison(self) -> int:
        self._ordinary = not self._ordinary
        bytes_ = _POISONS[self._ordinary]
        return bytes_[pick(len(bytes_), self._rng)]

    def _decoy(self, key: StagingKey, burst: Burst) -> tuple[int, ...]:
        """A decoy buffer set, where a kernel could read which sets are restored beside its own."""
        unused = set(range(self._shapes[key].sets)).difference(burst.order)
        if not self._prep.device.is_cpu or not unused or burst.idle:
            return ()
        return (sorted(unused)[pick(len(unused), self._rng)],)
