"""One bench child with shapes staged on it: check an entrant on a question, time it on a shape.

Owns the entrants of one child's life, the random order of everything, and the points at which
timing is checked. Checks and timing go through the same request, so that no kernel can tell them
apart. Which questions, and what follows from a failure, is for :mod:`workers.bench.device_bench`.
"""

import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.engine.fleet import Candidate
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.model import Cache, Measure
from tuner.plan import CellPlan
from tuner.telemetry import Vitals
from workers.bench.bursts import Volley, bursts, drifting, further, pick, random_order
from workers.bench.staged_shapes import Cases, Place
from workers.bench.stopping import LEAST_BURSTS, hopeless, settled
from workers.bench.supervisor import Deadlines, Shot, Supervisor
from workers.comparison import Expected
from workers.devices.port import Inspection
from workers.integrity.launch_checks import Contents, Question, agreeing, check, check_bystander
from workers.integrity.time_bounds import Bounds

_POISONS = ((0xFF, 0x7F, 0xFE, 0x7E), (0x3C, 0x3F, 0xBD, 0x2E))
"""Bytes that make a NaN or a huge number of every float type, and bytes that make ordinary ones.

In turn, so that neither a kernel that reads its output passes, nor one that leaves alone what looks
like an answer: where a set is launched on twice, that one would be timed doing nothing.
"""
_MAX_CONTINUED = 16
"""Launches at most before other contents come."""
_TAKES = 3
"""How often a timing is taken while the device is throttled."""


@dataclass(slots=True)
class Entrant:
    """A candidate loaded into a stand's child.

    ``launchables`` are bound at first use, by shape and whether on exactly aligned buffers; on
    ``awakened`` shapes a launch that nobody looked at may still run; one took up to ``slowest_ns``.
    """

    candidate: Candidate
    module: int
    launchables: dict[Place, int] = field(default_factory=dict)
    awakened: set[int] = field(default_factory=set)
    slowest_ns: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Aim:
    """A volley at a shape's buffers, exactly aligned or not."""

    key: Place
    volley: Volley


@dataclass(frozen=True, slots=True)
class _Fired:
    """A volley, the byte that outputs held before, how long it took, and what was seen after."""

    volley: Volley
    poison: int | None
    times: tuple[float, ...]
    seen: Inspection | None


class Stand:
    """Cases and entrants of one child. Raises :class:`DeviceFailure`; after a sticky one, drop it.

    ``notes`` are for the report; ``vitals`` is how the device was after the last timing.

    Args:
        server: the child.
        arguments: resolved arguments by shape.
        deadlines: how long launches may take.
        device: the child's; one that is no CPU may compare outputs itself.
        rng: decides orders, poisons and checked points.
        bounds: times that cannot be.
    """

    def __init__(
        self,
        server: Supervisor,
        arguments: Mapping[int, tuple[ResolvedArgument, ...]],
        deadlines: Deadlines,
        device: Device,
        rng: np.random.Generator,
        bounds: Bounds,
    ) -> None:
        self._server = server
        self._bounds = bounds
        self._arguments = arguments
        self._deadlines = deadlines
        self._device = device
        self._rng = rng
        self._shapes = Cases(server, arguments, device.base_align)
        self.notes: dict[str, None] = {}
        self.vitals: Vitals | None = None
        self._ordinary = bool(rng.integers(2))

    def stage(self, question: Question, caches: Sequence[Cache], repeats: int) -> None:
        """Stage the question's shape, with as many sets as timing needs."""
        self._shapes.stage(question, caches, repeats)

    def unstage(self, shape: int) -> None:
        """Free a shape's buffers; entrants must have left it."""
        self._shapes.unstage(shape)

    def load(self, candidate: Candidate) -> Entrant:
        """Load a candidate's binaries; where that fails, the next request does."""
        return Entrant(candidate, self._server.load(candidate.binaries))

    def flush(self) -> None:
        """Have done what was asked so far, so that no failure of it comes later."""
        self._server.flush()

    def unload(self, entrant: Entrant) -> None:
        """Unload a candidate, while nobody waits for it.

        Cases hold what they were staged with, made whole again.
        """
        for key in entrant.launchables:
            if key in self._shapes:
                self._shapes.refill(key, self._shapes[key].original)
        self._server.release(*entrant.launchables.values(), entrant.module)

    def unbind(self, entrant: Entrant, shape: int) -> None:
        """Unbind a candidate from one shape."""
        for exact in (True, False):
            if (shape, exact) in entrant.launchables:
                self._server.release(entrant.launchables.pop((shape, exact)))

    def check(
        self, entrant: Entrant, question: Question, baseline_ns: float, *, exact: bool
    ) -> None:
        """One checked launch on the question's inputs.

        Where outputs are left standing, one on poison before: a kernel that tells by its outputs
        that it is asked would be honest on the other alone.

        ``exact``: on the buffers that are aligned to no more than was promised.
        """
        key = question.shape, exact
        poisoned = replace(question, standing=False)
        for asked in (poisoned, question) if question.standing else (question,):
            target = (self._next(entrant, key, question.contents, baseline_ns),)
            if asked.standing:
                self._shapes.ensure(key, self._shapes[key].original)
                self._launch_unseen(entrant, key, baseline_ns, target)
            self._shapes.ensure(key, question.contents)
            volley = Volley(target * question.launches, look=target[0], stands=asked.standing)
            deque(self._judged(entrant, baseline_ns, asked, [_Aim(key, volley)]), maxlen=0)

    def once(self, entrant: Entrant, question: Question, baseline_ns: float) -> float:
        """Nanoseconds of one launch on a question's inputs, which is checked."""
        asked = question.shape, question.contents, baseline_ns
        one = self._single(entrant, *asked, question.expected)
        self._judge(question, one)
        return one.times[0]

    def beside(
        self,
        entrant: Entrant,
        baseline: Entrant,
        like: Question,
        contents: Contents,
        baseline_ns: float,
    ) -> float:
        """Nanoseconds of one launch on other contents, whose answer must be the baseline's.

        The baseline is asked afterwards, so that its answer cannot lie anywhere before.
        """
        one, other = (
            self._single(each, like.shape, contents, baseline_ns, {})
            for each in (entrant, baseline)
        )
        assert other.seen is not None
        self._judge(agreeing(like, contents, other.seen, self._named(like.shape)), one)
        return one.times[0]

    def lag(self, baseline: Entrant, question: Question, baseline_ns: float) -> float:
        """How many nanoseconds longer than a timing's a single launch of the baseline takes.

        The kernel that is tried may lag twice as long.
        """
        taken = (self.once(baseline, question, baseline_ns) for _ in range(_TAKES))
        return 2 * max(0.0, min(taken) - baseline_ns)

    def drifts(self, shape: int, measure: Measure) -> bool:
        """Whether a launch of a timing may find what another one left."""
        rotation = self._shapes.rotation(shape, measure.cache, measure.warmup, measure.repeats)
        return drifting(rotation, in_place=self._shapes.in_place(shape))

    def time(
        self,
        entrant: Entrant,
        question: Question,
        cache: Cache,
        measure: Measure,
        baseline_ns: float,
        cutoff_ns: float = math.inf,
        *,
        check: bool = False,
    ) -> list[float]:
        """Nanoseconds per launch, after warm-up, checked at random points on the way.

        Taken again, a few times, where the device was throttled meanwhile. Stops early once it is
        surely slower than ``cutoff_ns``, with what there is by then; not before it was checked.

        Args:
            entrant: whom to time; on the question's inputs.
            question: the inputs.
            cache: cold or hot.
            measure: launches to warm up and to time, and when that is enough.
            baseline_ns: what deadlines are reckoned from.
            cutoff_ns: what is above need not be known.
            check: whether to look at one launch on exactly aligned buffers before, in the same go.
        """
        before: list[_Aim] = []
        if check:
            key = question.shape, True
            target = self._next(entrant, key, question.contents, baseline_ns)
            self._shapes.ensure(key, question.contents)
            before.append(_Aim(key, Volley((target,), look=target)))
        self._shapes.ensure((question.shape, False), question.contents)
        for _ in range(_TAKES):
            samples = self._take(entrant, question, cache, measure, baseline_ns, cutoff_ns, before)
            before = []
            throttled = self.vitals.throttled if self.vitals else ()
            if not throttled:
                return samples
        self.notes[f"timed while throttled: {', '.join(throttled)}"] = None
        return samples

    def _take(
        self,
        entrant: Entrant,
        question: Question,
        cache: Cache,
        measure: Measure,
        baseline_ns: float,
        cutoff_ns: float,
        before: Sequence[_Aim],
    ) -> list[float]:
        key = question.shape, False
        rotation = self._shapes.rotation(question.shape, cache, measure.warmup, measure.repeats)
        order = random_order(rotation, self._rng)
        self._shapes[key].order = itertools.cycle(order[: rotation.sets])
        in_place = self._shapes.in_place(question.shape)
        ahead = bursts(rotation, order, self._rng, in_place=in_place)
        samples: list[float] = []
        raced: list[tuple[float, int]] = []

        def shoot(aims: Sequence[_Aim]) -> None:
            found = self._judged(entrant, baseline_ns, question, aims, watch=True)
            for volley, times in zip((aim.volley for aim in aims), found, strict=True):
                samples.extend(times if volley.timed else ())
                raced.extend([(min(times), len(volley.order))] if volley.raced else ())

        while ahead:
            # As many again as there were: few are in vain, and the device seldom waits for us.
            count = max(LEAST_BURSTS, len(raced))
            aims = [_Aim(key, volley) for burst in ahead[:count] for volley in burst]
            shoot([*before, *aims])
            before, ahead = (), ahead[count:]
            if hopeless(raced, cutoff_ns, cpu=self._device.is_cpu):
                return samples or [raced[-1][0]]
        launches = rotation.bursts * len(order)
        while launches < measure.at_most and not settled(samples, measure.until):
            more = further(rotation, order, self._rng, in_place=in_place)
            shoot([_Aim(key, volley) for volley in more])
            launches += len(order)
        self._bounds.refuse(question.shape, cache, rotation, statistics.median(samples))
        return samples

    def _next(
        self,
        entrant: Entrant,
        key: Place,
        contents: Contents | None,
        baseline_ns: float,
    ) -> int:
        """The set to launch on with these contents.

        Other contents than those that are timed come where a timing would go on, after a few of its
        launches: by nothing but them shall a kernel tell that it is asked.
        """
        staged = self._shapes[key]
        if contents is not staged.original and not key[1]:
            self._shapes.ensure(key, staged.original)
            count = 1 + pick(min(staged.sets, _MAX_CONTINUED), self._rng)
            order = tuple(next(staged.order) for _ in range(count))
            self._launch_unseen(entrant, key, baseline_ns, order)
        return next(staged.order)

    def _single(
        self,
        entrant: Entrant,
        shape: int,
        contents: Contents,
        baseline_ns: float,
        expected: Mapping[str, Expected],
    ) -> _Fired:
        """One launch on these contents, looked at.

        They are written twice, so that all have been read from their files before.
        """
        key = shape, False
        target = self._next(entrant, key, None, baseline_ns)
        self._shapes.refill(key, contents)
        self._shapes.refill(key, contents)
        aims = [_Aim(key, Volley((target,), look=target))]
        (one,) = self._fired(entrant, baseline_ns, aims, expected)
        return one

    def _launch_unseen(
        self,
        entrant: Entrant,
        key: Place,
        baseline_ns: float,
        order: tuple[int, ...],
    ) -> None:
        """Launches that nobody looks at."""
        deque(self._fired(entrant, baseline_ns, [_Aim(key, Volley(order))], {}), maxlen=0)

    def _judged(
        self,
        entrant: Entrant,
        baseline_ns: float,
        question: Question,
        aims: Sequence[_Aim],
        *,
        watch: bool = False,
    ) -> Iterator[tuple[float, ...]]:
        """Fire one after the other, then judge each that was looked at; yields their times."""
        for one in self._fired(entrant, baseline_ns, aims, question.expected, watch=watch):
            self._judge(question, one)
            yield one.times

    def _judge(self, question: Question, one: _Fired) -> None:
        arguments = self._named(question.shape)
        if one.seen is None:
            return
        if one.volley.look in one.volley.order:
            check(question, one.seen, arguments, one.poison)
        else:
            assert one.poison is not None
            check_bystander(question, one.seen, arguments, one.poison)

    def _fired(
        self,
        entrant: Entrant,
        baseline_ns: float,
        aims: Sequence[_Aim],
        expected: Mapping[str, Expected],
        *,
        watch: bool = False,
    ) -> Iterator[_Fired]:
        """Fire one after the other at one shape; what is expected is compared where devices can.

        With ``watch`` the device is looked at after the last.
        """
        shape, _ = aims[0].key
        poisons = [None if aim.volley.stands else self._poison() for aim in aims]
        fired = self._server.fire(
            [
                Shot(
                    launchable=self._bound(entrant, aim.key),
                    order=aim.volley.order,
                    poison=poison,
                    deadline=self._deadline(entrant, shape, baseline_ns),
                    inspect=aim.volley.look,
                    expected={} if self._device.is_cpu or aim.volley.look is None else expected,
                    watch=watch and aim is aims[-1],
                    also=() if poison is None else self._decoy(aim),
                )
                for aim, poison in zip(aims, poisons, strict=True)
            ],
            entrant.slowest_ns.get(shape, 0.0),
            apart=self._device.is_cpu,
        )
        for aim, poison, (times, seen, vitals) in zip(aims, poisons, fired, strict=True):
            if watch:
                self.vitals = vitals
            entrant.slowest_ns[shape] = max(entrant.slowest_ns.get(shape, 0.0), *times)
            yield _Fired(aim.volley, poison, times, seen)

    def _decoy(self, aim: _Aim) -> tuple[int, ...]:
        """A set to restore in vain, where a kernel could read that one beside it is restored."""
        idle = set(range(self._shapes[aim.key].sets)).difference(aim.volley.order)
        if not self._device.is_cpu or not idle or aim.volley.look in idle:
            return ()
        return (sorted(idle)[pick(len(idle), self._rng)],)

    def _named(self, shape: int) -> dict[str, ResolvedArgument]:
        return {argument.name: argument for argument in self._arguments[shape]}

    def _deadline(self, entrant: Entrant, shape: int, baseline_ns: float) -> float:
        """Seconds for a launch, and for another that may still run before it."""
        launches = 1 + (shape in entrant.awakened)
        entrant.awakened.discard(shape)
        return launches * self._deadlines.of(baseline_ns)

    def _bound(self, entrant: Entrant, key: Place) -> int:
        if key not in entrant.launchables:
            shape, exact = key
            cell = entrant.candidate.plan.cells[shape]
            assert isinstance(cell, CellPlan)
            least = self._shapes.least_align(exact)
            scratch = tuple(replace(s, align=max(s.align, least)) for s in cell.scratch)
            entrant.launchables[key] = self._server.bind(
                entrant.module, replace(cell, scratch=scratch), self._shapes[key].handle
            )
            compiles = traits_of(self._device.backend).compiles_at_first_launch
            if compiles and (shape, not exact) not in entrant.launchables:
                self._server.awaken(entrant.launchables[key], 0, _POISONS[0][0])
                entrant.awakened.add(shape)
        return entrant.launchables[key]

    def _poison(self) -> int:
        self._ordinary = not self._ordinary
        bytes_ = _POISONS[self._ordinary]
        return bytes_[pick(len(bytes_), self._rng)]
