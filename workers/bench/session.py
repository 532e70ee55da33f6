"""One bench child with shapes staged in it: check a candidate on a case, time it on a shape.

Owns the order of launches and the points at which a timing is checked. Checks and timing use the
same request, so that a kernel cannot tell them apart. Which cases are run, and what follows from a
failure, is decided by :mod:`workers.bench.device_bench`.
"""

import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tuner.candidate import Candidate
from tuner.errors import EnvironmentProblem
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.model import Cache, Measure
from tuner.experiment.objective import ENERGY_SECONDS, SETTLE_SECONDS
from tuner.telemetry import Vitals
from workers.bench.bursts import Burst, another_burst, ended_early, pick, plan_bursts, random_order
from workers.bench.deadlines import Deadlines
from workers.bench.energy import millijoules_per_launch
from workers.bench.launcher import Launcher, LoadedCandidate
from workers.bench.output_parts import compared_parts, within
from workers.bench.preparation import Preparation
from workers.bench.protocol import RunBurst
from workers.bench.staged_shapes import StagedShapes, StagingKey
from workers.bench.stopping import least_bursts, precise_enough, surely_slower
from workers.bench.supervisor import BurstResult, Supervisor
from workers.devices.port import Rotation
from workers.integrity.launch_checks import (
    Contents,
    VerificationCase,
    agreeing,
    check,
    check_memory,
    naming_early_starts,
)
from workers.integrity.time_bounds import Bounds

_MAX_CONTINUED = 16
"""Launches at most that continue a timing before other contents are written."""
_TAKES = 3
"""How often a timing is taken while the device is throttled."""
_MET = 3
"""Launches after which a processor knows most branches of a kernel again (EPYC, 2026-12-01)."""


class BenchSession:
    """Staged shapes and loaded candidates of one child.

    Raises :class:`DeviceFailure`; after a sticky one it is of no use. ``notes`` are for the report.
    ``rng`` decides orders, poisons and checked points; ``bounds`` refuse impossible times.
    """

    def __init__(
        self,
        server: Supervisor,
        prep: Preparation,
        deadlines: Deadlines,
        rng: np.random.Generator,
        bounds: Bounds,
    ) -> None:
        self._server = server
        self._bounds = bounds
        self._prep = prep
        self._rng = rng
        self._shapes = StagedShapes(server, prep.arguments, prep.device.base_align)
        self._launcher = Launcher(server, self._shapes, prep, deadlines, rng)
        self.notes: dict[str, None] = {}

    @property
    def vitals(self) -> Vitals | None:
        """The device's state after the last timing."""
        return self._launcher.vitals

    def stage(
        self, cases: Sequence[VerificationCase], caches: Sequence[Cache], repeats: int
    ) -> None:
        """Stage the shape of these cases, with as many sets as timing on the first needs."""
        self._shapes.stage(cases, caches, repeats)

    def stays_in_cache(self, shape: int, measure: Measure) -> bool:
        """Whether hot timings of a shape differ from cold ones on this device."""
        return self._shapes.stays_in_cache(shape, measure.warmup, measure.repeats)

    def unstage(self, shape: int) -> None:
        """Free a shape's buffers; candidates must be unbound from it."""
        self._shapes.unstage(shape)

    def load(self, candidate: Candidate) -> LoadedCandidate:
        """Load a candidate's binaries; a failure comes with the next request."""
        return LoadedCandidate(candidate, self._server.load(candidate.binaries))

    def flush(self) -> None:
        """Complete all requests so far, so that no failure of them comes later."""
        self._server.flush()

    def unload(self, loaded: LoadedCandidate) -> None:
        """Unload a candidate without waiting; its shapes hold their original contents again."""
        for key in loaded.launchables:
            if key in self._shapes:
                self._shapes.refill(key, self._shapes[key].original)
        self._server.release(*loaded.launchables.values(), loaded.module)

    def unbind(self, loaded: LoadedCandidate, shape: int) -> None:
        """Unbind a candidate from one shape."""
        for exact in (True, False):
            if (shape, exact) in loaded.launchables:
                self._server.release(loaded.launchables.pop((shape, exact)))

    def check(self, loaded: LoadedCandidate, case: VerificationCase, *, exact: bool) -> None:
        """One checked launch on a case's inputs.

        Where outputs are kept, another one before it on poisoned outputs: a kernel that recognises
        a check by its kept outputs could compute only in the second launch. A dependent launch is
        checked too while the kernel ahead of it still writes its memory.

        ``exact``: on the buffers that are aligned to exactly what is promised.
        """
        key = case.shape, exact
        poisoned = replace(case, keep_outputs=False)
        for asked in (poisoned, case) if case.keep_outputs else (case,):
            target = (self._next_set(loaded, key, case.contents),)
            if asked.keep_outputs:
                self._shapes.ensure(key, self._shapes[key].original)
                self._launch_unchecked(loaded, key, target)
            self._shapes.ensure(key, case.contents)
            order = target * case.launches
            plain = Burst(order, inspect=target[0], keep_outputs=asked.keep_outputs, exact=exact)
            bursts = [plain]
            if case.launches == 1 and not asked.keep_outputs:
                bursts += [replace(plain, late=late) for late in loaded.late_writes(case.shape)]
            deque(self._checked(loaded, asked, bursts), maxlen=0)

    def check_repeatedly(
        self, loaded: LoadedCandidate, case: VerificationCase, repeats: int
    ) -> None:
        """So many checked launches on the buffers that are timed: for errors that rarely show."""
        key = case.shape, False
        self._shapes.ensure(key, case.contents)
        targets = itertools.islice(self._shapes[key].order, repeats)
        bursts = [Burst((target,), inspect=target) for target in targets]
        deque(self._checked(loaded, case, bursts), maxlen=0)

    def time_single_launch(
        self, loaded: LoadedCandidate, case: VerificationCase, cache: Cache, *, forgets: bool
    ) -> float:
        """Nanoseconds of one launch on a case's inputs, which it has just met several times.

        If it ``forgets``, the device no longer knows which way the kernel's branches went.
        """
        self.time_burst(loaded, case, cache)
        target = next(self._shapes[case.shape, False].order)
        (found,) = self._run(loaded, case.shape, Burst((target,), forgets=forgets))
        return found

    def time_burst(self, loaded: LoadedCandidate, case: VerificationCase, cache: Cache) -> float:
        """Nanoseconds per launch of one burst of a timing on a case's inputs.

        After several launches on them: a processor must know which way branches go, as in a timing.
        """
        self._shapes.ensure((case.shape, False), case.contents)
        _, order = self._order(loaded, case.shape, cache, self._prep.measure)
        for _ in range(-(-_MET // len(order))):
            self._run(loaded, case.shape, Burst(order))
        return statistics.median(self._run(loaded, case.shape, Burst(order)))

    def time_on_own_inputs(
        self,
        loaded: LoadedCandidate,
        case: VerificationCase,
        cache: Cache,
        checked_by: LoadedCandidate | None = None,
    ) -> float:
        """The same on inputs that no launch has seen, and that follow from the case's.

        One launch of the burst is checked by another kernel, which runs after it, so that its
        answer is in no memory before. Where the middle launch of a burst counts, it ends early and
        the last is checked, since one launch could do the work of others.
        """
        shape = case.shape
        self._shapes.ensure((shape, False), case.contents)
        _, order = self._order(loaded, shape, cache, self._prep.measure)
        seed = int(self._rng.integers(1 << 62))
        parts = compared_parts(self._prep.arguments[shape], self._rng)
        outputs = (a.name for a in self._prep.arguments[shape] if a.is_output)
        told = {name: parts[name].bytes if name in parts else (0, 0) for name in outputs}
        if self._prep.device.is_cpu:
            length = 1 + pick(max(1, len(order) - 1), self._rng)
            burst = replace(ended_early(order, length), seed=seed, parts=told)
        else:
            inspect = order[pick(len(order), self._rng)]
            burst = Burst(order, inspect=inspect, seed=seed, parts=told)
        if checked_by is None:
            burst = replace(burst, inspect=None, idle=())
        ((asked, seen),) = self._launcher.run(loaded, shape, [burst], {})
        if checked_by is not None and burst.inspect is not None:
            one = Burst((burst.inspect,), inspect=burst.inspect, seed=seed, parts=told)
            ((_, other),) = self._launcher.run(checked_by, shape, [one], {})
            assert seen.inspection is not None
            assert other.inspection is not None
            compared = self._named(shape) | {name: part.argument for name, part in parts.items()}
            of_parts = {name: one for name, one in case.expected.items() if name in parts}
            judged = agreeing(replace(case, expected=of_parts), other.inspection, compared)
            with within(parts):
                check(judged, seen.inspection, compared, asked.poison)
        return statistics.median(seen.times)

    def time(
        self,
        loaded: LoadedCandidate,
        case: VerificationCase,
        cache: Cache,
        measure: Measure,
        cutoff_ns: float = math.inf,
        *,
        check: bool = False,
    ) -> list[float]:
        """Nanoseconds per launch, after warm-up, checked at random points.

        Taken again, a few times, if the device was throttled meanwhile. Stops early once it is
        surely slower than ``cutoff_ns``, with the samples so far; never before it was checked. With
        ``check`` one launch on exactly aligned buffers is checked first, in the same go.
        """
        before: list[Burst] = []
        if check:
            key = case.shape, True
            target = self._next_set(loaded, key, case.contents)
            self._shapes.ensure(key, case.contents)
            before.append(Burst((target,), inspect=target, exact=True))
        self._shapes.ensure((case.shape, False), case.contents)
        for _ in range(_TAKES):
            samples = self._take(loaded, case, cache, measure, cutoff_ns, before)
            before = []
            throttled = self.vitals.throttled if self.vitals else ()
            if not throttled:
                return samples
        self.notes[f"timed while throttled: {', '.join(throttled)}"] = None
        return samples

    def energy(
        self,
        loaded: LoadedCandidate,
        case: VerificationCase,
        cache: Cache,
        measure: Measure,
        timed_ns: float,
    ) -> float:
        """Millijoules per launch, from launches repeated for some tenths of a second.

        Taken again, a few times, if the device was throttled or used by others meanwhile. Repeats
        the launches that :meth:`time` timed, and found to take ``timed_ns`` each.

        Raises:
            EnvironmentProblem: the device has no energy counter, or others use it all the time.
        """
        self._shapes.ensure((case.shape, False), case.contents)
        _, order = self._order(loaded, case.shape, cache, measure)
        for _ in range(_TAKES):
            readings = self._launcher.repeat(
                loaded, case.shape, Burst(order), SETTLE_SECONDS, ENERGY_SECONDS
            )
            vitals = self.vitals
            if vitals is None or not (vitals.throttled or vitals.others):
                break
        if vitals and vitals.others:
            raise EnvironmentProblem(
                f"{vitals.others} other processes use the device, whose energy counter counts "
                "theirs too: end them, or set objective: time"
            )
        if vitals and vitals.throttled:
            self.notes[f"energy measured while throttled: {', '.join(vitals.throttled)}"] = None
        return millijoules_per_launch(readings, timed_ns)

    def _order(
        self, loaded: LoadedCandidate, shape: int, cache: Cache, measure: Measure
    ) -> tuple[Rotation, tuple[int, ...]]:
        """How a shape is timed, and in which order of its sets.

        In the same as before, where one is known: the device keeps a graph for each.
        """
        rotation = self._shapes.rotation(shape, cache, measure.warmup, measure.repeats)
        key = shape, rotation.sets
        if key not in loaded.orders:
            loaded.orders[key] = random_order(rotation, self._rng)
        return rotation, loaded.orders[key]

    def _take(
        self,
        loaded: LoadedCandidate,
        case: VerificationCase,
        cache: Cache,
        measure: Measure,
        cutoff_ns: float,
        before: Sequence[Burst],
    ) -> list[float]:
        rotation, order = self._order(loaded, case.shape, cache, measure)
        self._shapes[case.shape, False].order = itertools.cycle(order)
        late = loaded.late_writes(case.shape)
        mixes = self._shapes[case.shape, False].changed is not None
        planned = plan_bursts(rotation, order, self._rng, late=late, mixes=mixes)
        samples: list[float] = []
        raced: list[tuple[float, int]] = []

        def run(bursts: Sequence[Burst]) -> None:
            found = self._checked(loaded, case, bursts, read_telemetry=True)
            for burst, times in zip(bursts, found, strict=True):
                samples.extend(times if burst.timed else ())
                raced.extend([(min(times), len(burst.order))] if burst.raced else ())

        first = len(planned)
        if math.isfinite(cutoff_ns):
            first = least_bursts([len(burst.order) if burst.raced else 0 for burst in planned])
        run([*before, *planned[:first]])
        if surely_slower(raced, cutoff_ns, cpu=self._prep.device.is_cpu):
            return samples or [raced[-1][0]]
        if first < len(planned):  # one was within the margin: it is not given up any more
            run(planned[first:])
        launches = rotation.bursts * len(order)
        while launches < measure.at_most and not precise_enough(samples, measure.until):
            run([another_burst(order, self._rng)])
            launches += len(order)
        if self._prep.device.is_cpu:
            self._server.expect_idle()
        self._bounds.refuse(case.shape, cache, rotation, statistics.median(samples))
        return samples

    def _next_set(
        self,
        loaded: LoadedCandidate,
        key: StagingKey,
        contents: Contents,
    ) -> int:
        """The set for a launch on these contents.

        Contents other than the timed ones follow a few launches that continue a timing, so that
        nothing but the contents tells a kernel that it is checked.
        """
        staged = self._shapes[key]
        if contents is not staged.original and not key[1]:
            self._shapes.ensure(key, staged.original)
            count = 1 + pick(min(staged.sets, _MAX_CONTINUED), self._rng)
            order = tuple(dict.fromkeys(next(staged.order) for _ in range(count)))
            self._launch_unchecked(loaded, key, order)
        return next(staged.order)

    def _run(self, loaded: LoadedCandidate, shape: int, burst: Burst) -> tuple[float, ...]:
        """Run a burst that is not inspected; its times."""
        ((_, seen),) = self._launcher.run(loaded, shape, [burst], {})
        return seen.times

    def _launch_unchecked(
        self, loaded: LoadedCandidate, key: StagingKey, order: tuple[int, ...]
    ) -> None:
        self._launcher.run_ahead(loaded, key[0], Burst(order, exact=key[1]))

    def _checked(
        self,
        loaded: LoadedCandidate,
        case: VerificationCase,
        bursts: Sequence[Burst],
        *,
        read_telemetry: bool = False,
    ) -> Iterator[tuple[float, ...]]:
        """Run bursts in order and check each that was inspected; yields their times."""
        completed = self._launcher.run(
            loaded, case.shape, bursts, case.expected, read_telemetry=read_telemetry
        )
        changed = self._shapes[case.shape, False].changed
        for burst in bursts:
            with naming_early_starts(late=burst.late is not None):
                asked, seen = next(completed)
                self._check(changed if changed and burst.mixed else case, asked, seen)
            yield seen.times

    def _check(self, case: VerificationCase, asked: RunBurst, seen: BurstResult) -> None:
        if seen.inspection is None:
            return
        if asked.inspect is None:
            check_memory(case, seen.inspection)
        else:
            check(case, seen.inspection, self._named(case.shape), asked.poison)

    def _named(self, shape: int) -> dict[str, ResolvedArgument]:
        return {argument.name: argument for argument in self._prep.arguments[shape]}
