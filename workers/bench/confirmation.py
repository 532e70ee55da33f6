"""Confirmation: finalists and baseline in one fresh child, with extra checks, timed interleaved.

Owns the order of checks and timings. A finalist that fails is rejected; the others start over in
another fresh child.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from tuner.candidate import BASELINE, Candidate
from tuner.engine.work import ConfirmWork
from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Cache
from tuner.experiment.objective import ENERGY_ROUNDS
from tuner.journal.facts import ConfirmationSampled, ConfirmScope, Note, Sample, Unchecked
from tuner.plan import CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Rejected
from workers.bench.baseline_rejections import is_wrong
from workers.bench.energy import interleaved
from workers.bench.input_specs import extra_keys, scope_of
from workers.bench.launcher import LoadedCandidate
from workers.bench.oracle import Oracle
from workers.bench.preparation import Preparation
from workers.bench.recheck import draws_inputs, recheck_timing
from workers.bench.session import BenchSession
from workers.bench.supervisor import ChildLost
from workers.device_lock import DeviceLock
from workers.devices.port import DeviceFailure
from workers.integrity.launch_checks import VerificationCase, rejected
from workers.integrity.timing_recheck import Accepted

REPEATS, REPEATS_ON_GPU = 64, 1000
"""Checked launches in a row of each winner on its smallest shape; of a kernel that is wrong once in
a thousand, the latter find two in three. A processor's outputs are compared outside the child,
which takes longer than a launch."""

PARTS, PARTS_ON_GPU = 5, 3
"""Parts that a timing is divided into, between which candidates alternate; how many are taken on a
GPU, where each has a hundred launches or more, whatever it should have."""


class _CandidateFailed(Exception):
    """A candidate failed, or its child was ``lost`` meanwhile; never leaves this module."""

    def __init__(self, trial: int, reason: Rejected, *, lost: bool) -> None:
        super().__init__(reason.detail)
        self.trial = trial
        self.reason = reason
        self.lost = lost


class Confirmation:
    """One process of confirmation.

    Args:
        prep: the prepared experiment.
        oracle: makes the extra cases.
        open_session: opens a session on a fresh child.
        lock: held while a child works; others have their turns between launches.
        rng: decides the order of candidates.
    """

    def __init__(
        self,
        prep: Preparation,
        oracle: Oracle,
        open_session: Callable[[], BenchSession],
        lock: DeviceLock,
        rng: np.random.Generator,
    ) -> None:
        self._prep = prep
        self._oracle = oracle
        self._open_session = open_session
        self._lock = lock
        self._rng = rng

    def run(self, work: ConfirmWork) -> ConfirmationSampled:
        """Check and time; those in ``extra_checks`` also on the extra cases.

        Raises:
            EnvironmentProblem: the baseline fails.
        """
        failed: dict[int, Rejected] = {}
        notes: dict[Note, None] = {}
        while True:
            finalists = [c for c in work.finalists if c.trial not in failed]
            vitals: list[Vitals] = []
            try:
                samples = self._once(finalists, work, notes, vitals)
            except _CandidateFailed as out:
                if out.trial == BASELINE:
                    failed |= self._culprits(finalists, work, out.reason)
                else:
                    failed[out.trial] = out.reason
            else:
                return ConfirmationSampled(
                    work=work.id,
                    process=work.process,
                    scope=work.scope,
                    extra_checks=work.extra_checks,
                    samples=samples,
                    failed=tuple(failed.items()),
                    notes=tuple(notes),
                    vitals=tuple(vitals),
                )

    def _culprits(
        self, finalists: Sequence[Candidate], work: ConfirmWork, reason: Rejected
    ) -> dict[int, Rejected]:
        """The finalists beside which the baseline fails: on a CPU they share its memory.

        Raises:
            EnvironmentProblem: it fails alone, or beside none of them.
        """
        found = {}
        plain = replace(work, extra_checks=())
        for one in (None, *finalists):
            try:
                self._once([one] if one else [], plain, {}, [])
            except _CandidateFailed as out:
                if one is None:
                    break
                beside = "beside it the baseline fails: " if out.trial == BASELINE else ""
                found[one.trial] = replace(out.reason, detail=beside + out.reason.detail)
        if not found:
            raise EnvironmentProblem(f"the baseline fails in a fresh process: {reason.detail}")
        return found

    def _once(
        self,
        finalists: Sequence[Candidate],
        work: ConfirmWork,
        notes: dict[Note, None],
        vitals: list[Vitals],
    ) -> tuple[Sample, ...]:
        """Check and time; retry once if the child was killed externally."""
        try:
            return self._attempt(finalists, work, notes, vitals)
        except _CandidateFailed as out:
            if not out.lost:
                raise
        return self._attempt(finalists, work, notes, vitals)

    def _attempt(
        self,
        finalists: Sequence[Candidate],
        work: ConfirmWork,
        notes: dict[Note, None],
        vitals: list[Vitals],
    ) -> tuple[Sample, ...]:
        checked_further = [c.trial for c in finalists if c.trial in work.extra_checks]
        extra = self._extra_cases(work.scope, notes) if checked_further else {}
        self._oracle.settle()  # making others beside would disturb the clock of this process
        self._oracle.end_children()
        with self._lock.held():
            return self._timed(finalists, work.scope, checked_further, extra, notes, vitals)

    def _timed(
        self,
        finalists: Sequence[Candidate],
        scope: ConfirmScope,
        checked_further: Sequence[int],
        extra: Mapping[int, Sequence[VerificationCase]],
        notes: dict[Note, None],
        vitals: list[Vitals],
    ) -> tuple[Sample, ...]:
        session = self._open_session()
        loaded_by_trial, serialised = self._loaded(session, finalists)
        samples: list[Sample] = []
        # Small ones first: on an H200 the extra checks on 200 MB made every later launch of a child
        # take up to 0.35 µs more, a seventh of a small kernel's time.
        shapes = sorted(
            self._prep.arguments, key=lambda n: (n not in self._prep.timed, self._bytes(n))
        )
        smallest = next(shape for shape in shapes if shape in self._prep.tune)
        for shape in shapes:
            caches = self._caches(shape, scope)
            if shape in self._prep.timed and not caches:
                continue
            cases = self._prep.cases.get(shape, ())[:-1]  # the last is for the timing recheck
            further = extra.get(shape, ())
            if not (cases or further):
                continue
            runners = {t: loaded for t, loaded in loaded_by_trial.items() if _runs(loaded, shape)}
            new = {trial: runners[trial] for trial in checked_further if trial in runners}
            first, *_ = *cases, *further
            with self._attribute_failure(BASELINE, shape):
                session.stage(first, caches or ("hot",), self._prep.measure.repeats)
            self._check_further(session, new, shape, cases, further)
            if shape in self._prep.timed:
                if "hot" in caches and not session.stays_in_cache(shape, self._prep.measure):
                    notes[f"{self._prep.bindings[shape]} is too large to be timed hot"] = None
                for cache in caches:
                    plain_runners = {t: one for t, one in serialised.items() if t in runners}
                    samples += self._time(session, runners, plain_runners, shape, cache)
                if shape == smallest:
                    self._check_repeatedly(session, new, shape)
                known = self._prep.baseline_ns[shape]
                for case in (one for one in cases if one.launches > 1):
                    for trial, loaded in runners.items():
                        with self._attribute_failure(trial, shape):
                            session.check(loaded, case, known, exact=False)
                if session.vitals is not None:
                    vitals.append(session.vitals)
            for trial, loaded in (*runners.items(), *serialised.items()):
                with self._attribute_failure(trial, shape):
                    session.unbind(loaded, shape)
                    session.flush()
            with self._attribute_failure(BASELINE, shape):
                session.unstage(shape)
        notes.update(session.notes)
        return tuple(samples)

    def _loaded(
        self, session: BenchSession, finalists: Sequence[Candidate]
    ) -> tuple[dict[int, LoadedCandidate], dict[int, LoadedCandidate]]:
        """Baseline and finalists; and serialised, those that are launched dependently."""
        baseline = self._prep.setup.baseline
        loaded: dict[int, LoadedCandidate] = {}
        serialised: dict[int, LoadedCandidate] = {}
        for candidate in (baseline, *finalists):
            with self._attribute_failure(candidate.trial):
                loaded[candidate.trial] = session.load(candidate)
                if candidate.plan.dependent and not baseline.plan.dependent:
                    plain = replace(candidate, plan=candidate.plan.serialised)
                    serialised[candidate.trial] = session.load(plain)
                session.flush()
        return loaded, serialised

    def _check_further(
        self,
        session: BenchSession,
        runners: Mapping[int, LoadedCandidate],
        shape: int,
        cases: Sequence[VerificationCase],
        extra: Sequence[VerificationCase],
    ) -> None:
        """Check finalists that are new on all cases; others are checked while they are timed."""
        known = self._prep.baseline_ns.get(shape, max(self._prep.baseline_ns.values()))
        for number, case in enumerate((*cases, *extra)):
            for trial, loaded in runners.items():
                self._lock.pause()
                with self._attribute_failure(trial, shape):
                    for exact in (True,) if number < len(cases) else (True, False):
                        session.check(loaded, case, known, exact=exact)

    def _check_repeatedly(
        self, session: BenchSession, runners: Mapping[int, LoadedCandidate], shape: int
    ) -> None:
        """Check finalists in many launches in a row."""
        repeats = REPEATS if self._prep.device.is_cpu else REPEATS_ON_GPU
        case, known = self._prep.cases[shape][0], self._prep.baseline_ns[shape]
        for trial, loaded in runners.items():
            with self._attribute_failure(trial, shape):
                session.check_repeatedly(loaded, case, known, repeats)

    def _time(
        self,
        session: BenchSession,
        runners: Mapping[int, LoadedCandidate],
        serialised: Mapping[int, LoadedCandidate],
        shape: int,
        cache: Cache,
    ) -> list[Sample]:
        """Time them in alternation; those launched dependently also ``serialised``."""
        case, known = self._prep.cases[shape][0], self._prep.baseline_ns[shape]
        measure = self._prep.measure
        part = replace(
            measure,
            warmup=-(-measure.warmup // PARTS),
            repeats=-(-measure.repeats // PARTS),
            at_most=-(-measure.at_most // PARTS),
        )
        rounds = PARTS if self._prep.device.is_cpu else PARTS_ON_GPU
        takers = {(trial, False): loaded for trial, loaded in runners.items()}
        takers |= {(trial, True): loaded for trial, loaded in serialised.items()}
        turns = list(takers)
        times: dict[tuple[int, bool], list[float]] = {turn: [] for turn in turns}
        check_at = {trial: self._rng.integers(rounds) for trial in runners}
        finalists = [t for t in runners if t != BASELINE and cache == measure.cache]

        def take(turn: tuple[int, bool]) -> list[float]:
            return session.time(takers[turn], case, cache, part, known)

        def again(trial: int) -> list[float]:
            return [ns for _ in range(rounds) for ns in take((trial, False))]

        def energy(turn: tuple[int, bool]) -> float:
            self._lock.pause()
            with self._attribute_failure(turn[0], shape):
                timed_ns = statistics.median(times[turn])
                return session.energy(takers[turn], case, cache, measure, timed_ns)

        for number in range(rounds):
            for trial, plain in (turns[at] for at in self._rng.permutation(len(turns))):
                self._lock.pause()
                with self._attribute_failure(trial, shape):
                    times[trial, plain] += take((trial, plain))
                    if not plain and number == check_at[trial] and trial in finalists:
                        self._check_others(session, runners[trial], shape)
        energies: dict[tuple[int, bool], float] = {}
        if self._prep.energy_share:
            each = {turn: partial(energy, turn) for turn in turns}
            energies = interleaved(each, ENERGY_ROUNDS, self._rng)
        # Rechecks run last, so that a kernel cannot tell when checking is over. Their order is
        # random, since later ones could learn from earlier ones in the same process.
        accepted = {turn: Accepted(taken) for turn, taken in times.items()}
        for trial in self._rng.permutation(finalists).tolist():
            self._lock.pause()
            with self._attribute_failure(trial, shape):
                accepted[trial, False] = recheck_timing(
                    self._prep,
                    session,
                    runners[trial],
                    runners[BASELINE],
                    shape,
                    times[trial, False],
                    partial(again, trial),
                    self._rng,
                    unique_inputs=draws_inputs(self._prep, shape, self._rng),
                )
        return [
            Sample(
                trial=trial,
                shape=shape,
                cache=cache,
                median_ns=statistics.median(one.samples),
                serialised=plain,
                millijoules=energies.get((trial, plain)),
                unseen=one.unseen,
            )
            for (trial, plain), one in accepted.items()
        ]

    def _bytes(self, shape: int) -> int:
        return sum(a.size for a in self._prep.arguments[shape] if a.is_buffer)

    def _check_others(self, session: BenchSession, loaded: LoadedCandidate, shape: int) -> None:
        """Check a finalist on its other cases, between two parts of its timing."""
        _, *others, _ = self._prep.cases[shape]
        for case in others:
            if case.launches == 1:
                session.check(loaded, case, self._prep.baseline_ns[shape], exact=False)

    def _extra_cases(
        self, scope: ConfirmScope, notes: dict[Note, None]
    ) -> dict[int, list[VerificationCase]]:
        """The extra cases by shape, where the baseline gives outputs."""
        wanted = extra_keys(self._prep, scope)
        found: dict[int, list[VerificationCase]] = {}
        for (shape, spec), case in zip(wanted, self._oracle.cases(wanted), strict=True):
            if isinstance(case, VerificationCase):
                found.setdefault(shape, []).append(case)
                continue
            odd = shape not in self._prep.timed and shape not in self._prep.constants
            unchecked = Unchecked(
                shape=str(self._prep.bindings[shape]),
                inputs=spec.label,
                reason=case.detail,
                code=case.code,
                wrong=odd and is_wrong(case),
            )
            notes[unchecked] = None
        return found

    @contextmanager
    def _attribute_failure(self, trial: int, shape: int | None = None) -> Iterator[None]:
        """Attribute a device failure to the running candidate."""
        try:
            yield
        except DeviceFailure as failure:
            found = rejected(failure, shape if shape in self._prep.timed else None)
            if shape is not None and found.shape is None:
                label = str(self._prep.bindings[shape])  # the report numbers timed shapes alone
                if label not in found.detail:
                    found = replace(found, detail=f"{found.detail} (on the odd shape {label})")
            raise _CandidateFailed(trial, found, lost=isinstance(failure, ChildLost)) from None

    def _caches(self, shape: int, scope: ConfirmScope) -> tuple[Cache, ...]:
        """The cache states in which a scope times a shape: on a GPU both, for the report."""
        if shape not in self._prep.timed:
            return ()
        wanted = self._prep.measure.cache
        own = (wanted,) if scope in (scope_of(self._prep, shape), "all") else ()
        if self._prep.device.is_cpu or scope == "tune":
            return own
        return (*own, "hot" if wanted == "cold" else "cold")


def _runs(loaded: LoadedCandidate, shape: int) -> bool:
    cells = loaded.candidate.plan.cells
    return shape < len(cells) and isinstance(cells[shape], CellPlan)
