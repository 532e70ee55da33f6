"""Confirmation: finalists and baseline in one fresh child, with extra checks, timed in alternation.

Owns the order of checks and timings. A finalist that fails is rejected; the others start over in
another fresh child.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np

from tuner.candidate import BASELINE, Candidate
from tuner.engine.work import ConfirmWork
from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Cache
from tuner.journal.facts import ConfirmationSampled, ConfirmScope, Note, Sample, Unchecked
from tuner.plan import CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Rejected
from workers.bench.baseline_rejections import is_wrong
from workers.bench.case_pool import CaseKey
from workers.bench.input_specs import extra_keys, scope_of
from workers.bench.interleaving import InterleavedTiming
from workers.bench.launcher import LoadedCandidate
from workers.bench.oracle import Oracle
from workers.bench.preparation import Preparation, fits_beside
from workers.bench.session import BenchSession
from workers.bench.supervisor import ChildLost
from workers.device_lock import DeviceLock
from workers.devices.port import DeviceFailure
from workers.devices.staging import buffer_bytes
from workers.integrity.launch_checks import VerificationCase, rejected

REPEATS, REPEATS_ON_GPU = 64, 1000
"""Checked launches in a row of each winner on its smallest shape; of a kernel that is wrong once in
a thousand, the latter find two in three. A processor's outputs are compared outside the child,
which takes longer than a launch."""


class _CandidateFailed(Exception):
    """A candidate failed, or its child was ``lost`` meanwhile; never leaves this module."""

    def __init__(self, trial: int, reason: Rejected, *, lost: bool) -> None:
        super().__init__(reason.detail)
        self.trial = trial
        self.reason = reason
        self.lost = lost


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Candidates by trial: baseline and finalists; finalists that are given the extra checks.

    Those that are launched dependently are there once more, ``serialised``.
    """

    all: Mapping[int, LoadedCandidate]
    new: Mapping[int, LoadedCandidate]
    serialised: Mapping[int, LoadedCandidate]

    def on(self, shape: int) -> "_Loaded":
        """Those that run on a shape."""
        parts = (self.all, self.new, self.serialised)
        return _Loaded(*({t: c for t, c in part.items() if _runs(c, shape)} for part in parts))


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
        """Time, then check on the shapes that are not timed, of which cases may yet be made.

        On a processor all are made before: it has no other cores for them.
        """
        new = [c.trial for c in finalists if c.trial in work.extra_checks]
        keys = extra_keys(self._prep, work.scope) if new else []
        odd = [key for key in keys if key[0] not in self._prep.timed]
        timed = [key for key in keys if key not in odd]
        is_cpu = self._prep.device.is_cpu
        before = [key for key in odd if is_cpu or not fits_beside(self._prep, key[0])]
        self._oracle.make_ahead(before)
        extra = self._extra_cases(timed, notes)
        self._oracle.cases(before)
        with self._oracle.paused(), self._lock.held():
            session = self._open_session()
            loaded = self._loaded(session, finalists, new)
            samples: list[Sample] = []
            # Small ones first: on an H200 the extra checks on 200 MB made every later launch of a
            # child take up to 0.35 µs more, a seventh of a small kernel's time.
            for shape in sorted(self._prep.timed, key=self._bytes):
                if caches := self._caches(shape, work.scope):
                    further = extra.get(shape, ())
                    samples += self._timed(session, loaded.on(shape), shape, caches, further, notes)
                    if session.vitals is not None:
                        vitals.append(session.vitals)
        self._check_odd_shapes(session, loaded, odd, notes)
        notes.update(session.notes)
        return tuple(samples)

    def _timed(
        self,
        session: BenchSession,
        loaded: _Loaded,
        shape: int,
        caches: Sequence[Cache],
        extra: Sequence[VerificationCase],
        notes: dict[Note, None],
    ) -> list[Sample]:
        """Check those that are new on all cases of a timed shape, and time all on it."""
        cases = self._prep.cases[shape]
        samples: list[Sample] = []
        with self._staged(session, loaded, cases, caches):
            self._check_further(session, loaded.new, shape, cases, extra)
            if "hot" in caches and not session.stays_in_cache(shape, self._prep.measure):
                notes[f"{self._prep.bindings[shape]} is too large to be timed hot"] = None
            for cache in caches:
                samples += InterleavedTiming(
                    prep=self._prep,
                    session=session,
                    lock=self._lock,
                    rng=self._rng,
                    runners=loaded.all,
                    serialised=loaded.serialised,
                    shape=shape,
                    cache=cache,
                    attribute=partial(self._attribute_failure, shape=shape),
                ).samples()
            if shape == min(self._prep.tune, key=self._bytes):
                self._check_repeatedly(session, loaded.new, shape)
            for case in (one for one in cases if one.launches > 1):
                for trial, runner in loaded.all.items():
                    with self._attribute_failure(trial, shape):
                        session.check(runner, case, exact=False)
        return samples

    def _check_odd_shapes(
        self,
        session: BenchSession,
        loaded: _Loaded,
        keys: Sequence[CaseKey],
        notes: dict[Note, None],
    ) -> None:
        """Check those that are new on shapes that are not timed, as soon as their cases are made.

        Nothing is timed any more, so the baseline runs for other cases meanwhile.
        """
        self._oracle.make_ahead(keys)
        for shape, here in groupby(keys, itemgetter(0)):
            cases = self._extra_cases([*here], notes).get(shape, [])
            new = _Loaded(loaded.new, loaded.new, {}).on(shape)
            if cases:
                with self._lock.held(pause=0.0), self._staged(session, new, cases, ("hot",)):
                    self._check_further(session, new.new, shape, (), cases)

    @contextmanager
    def _staged(
        self,
        session: BenchSession,
        loaded: _Loaded,
        cases: Sequence[VerificationCase],
        caches: Sequence[Cache],
    ) -> Iterator[None]:
        """Have the shape of these cases staged; candidates are unbound from it at the end."""
        shape = cases[0].shape
        with self._attribute_failure(BASELINE, shape):
            session.stage(cases, caches, self._prep.measure.repeats)
        yield
        for trial, runner in (*loaded.all.items(), *loaded.serialised.items()):
            with self._attribute_failure(trial, shape):
                session.unbind(runner, shape)
                session.flush()
        with self._attribute_failure(BASELINE, shape):
            session.unstage(shape)

    def _loaded(
        self, session: BenchSession, finalists: Sequence[Candidate], new: Sequence[int]
    ) -> _Loaded:
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
        return _Loaded(loaded, {trial: loaded[trial] for trial in new}, serialised)

    def _check_further(
        self,
        session: BenchSession,
        runners: Mapping[int, LoadedCandidate],
        shape: int,
        cases: Sequence[VerificationCase],
        extra: Sequence[VerificationCase],
    ) -> None:
        """Check finalists that are new on all cases; others are checked while they are timed."""
        for number, case in enumerate((*cases, *extra)):
            for trial, loaded in runners.items():
                self._lock.pause()
                with self._attribute_failure(trial, shape):
                    for exact in (True,) if number < len(cases) else (True, False):
                        session.check(loaded, case, exact=exact)

    def _check_repeatedly(
        self, session: BenchSession, runners: Mapping[int, LoadedCandidate], shape: int
    ) -> None:
        """Check finalists in many launches in a row."""
        repeats = REPEATS if self._prep.device.is_cpu else REPEATS_ON_GPU
        case = self._prep.cases[shape][0]
        for trial, loaded in runners.items():
            with self._attribute_failure(trial, shape):
                session.check_repeatedly(loaded, case, repeats)

    def _bytes(self, shape: int) -> int:
        return buffer_bytes(self._prep.arguments[shape])

    def _extra_cases(
        self, wanted: Sequence[CaseKey], notes: dict[Note, None]
    ) -> dict[int, list[VerificationCase]]:
        """Extra cases by shape, where the baseline gives outputs."""
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
