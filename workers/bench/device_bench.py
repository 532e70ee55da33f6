"""One device's bench: the order of checks, and what a failure means for the next step.

Used by the local fleet's thread and by the Ray actor. Only child processes touch the device
(:mod:`workers.bench.supervisor`): for trials, for the oracle, and a fresh one to confirm.
"""

import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np

from tuner.backends.registry import traits_of
from tuner.candidate import Candidate
from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork
from tuner.errors import EnvironmentProblem, SpecError
from tuner.integrity.binary_rules import binary_rejection
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Span,
    TrialFinished,
    WinnersExamined,
)
from tuner.search.port import Losses
from tuner.trial import Code, Full, Infeasible, Measured, Rejected, Stage
from workers.bench.availability import if_free
from workers.bench.ceilings import Compile, compiled_ahead, measure_ceilings
from workers.bench.children import BenchChildren
from workers.bench.confirmation import Confirmation
from workers.bench.deadlines import Deadlines
from workers.bench.examiner import Examiner
from workers.bench.input_notes import changed_inputs, note_untested
from workers.bench.input_specs import extra_keys, search_keys
from workers.bench.oracle import Oracle
from workers.bench.oracle_files import OracleFiles
from workers.bench.preparation import Preparation, fits_beside, too_large
from workers.bench.session import BenchSession
from workers.bench.supervisor import ChildLost, Supervisor
from workers.bench.trial_runner import TrialRunner
from workers.device_lock import DeviceLock
from workers.devices.port import DeviceFailure
from workers.forking import ChildFailed
from workers.integrity.launch_checks import rejected
from workers.integrity.trivial_answers import trivial_answer_rejection
from workers.scratch import PrivateFolder

_SWITCH_SECONDS = 0.0001
"""Python's switch interval: a bench must not wait 5 ms for another thread in each request."""
_PAUSE_SECONDS = 0.1
"""Test cases wait so long for the device after a trial: each would hold up the next for 0.1 s."""
CHILD_ATTEMPTS = 2
"""Children in which a candidate is tried if its child is lost."""
CANARY_ATTEMPTS = 2
"""New children in a row in which the baseline fails before the device is quarantined."""

_MEASURED: dict[str, Ceilings] = {}
"""Ceilings that this process has measured, by device identity."""


class DeviceBench:
    """One device's bench: synchronous, for one thread at a time.

    Holds the device's host-wide lock whenever a child works on it, so that benches of several runs
    can share it without disturbing each other's times.
    """

    def __init__(
        self,
        backend: str,
        index: int,
        *,
        deadlines: Deadlines | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        """``rng`` decides what a kernel must not foresee; by default no seed is known."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._backend = backend
        self._index = index
        self._deadlines = deadlines or Deadlines()
        self._folder = PrivateFolder("bench")
        self._described: tuple[Device, str] | None = None
        self._device_lock: DeviceLock | None = None
        self._prep: Preparation | None = None
        self._oracle: Oracle | None = None
        self._runner: TrialRunner | None = None
        self._quarantined = ""
        folder = self._folder.path / "cache"
        self._children = BenchChildren(backend, index, self._deadlines, folder)
        self._rng = rng or np.random.default_rng()
        self._closed = threading.Event()
        self._examiner = Examiner(backend, index, self._folder.path, self._closed)
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """Host and device: the worker of every span.

        By the device's identity once it is known, since each Ray actor sees its GPU as index 0.
        """
        device = self._described[1] if self._described else f"{self._backend}{self._index}"
        return f"{socket.gethostname()}/{device}"

    @property
    def waits_for(self) -> str:
        """Which process has had the device for long, or that others use it in turns; or empty."""
        return "" if self._device_lock is None else self._device_lock.waits_for

    def device(self, *, shared: bool = False) -> Device:
        """The device's model and limits; ``shared``: also where another user works on it.

        Raises:
            EnvironmentProblem: no such device, driver or package, or another user works on it.
        """
        try:
            return self._describe()[0] if shared else if_free(*self._describe())
        except ChildFailed as failure:
            raise EnvironmentProblem(f"{self.name}: {failure}") from None

    def warm_up(self) -> None:
        """Open a GPU before there is work; a failure shows again in :meth:`prepare`."""
        if traits_of(self._backend).gpu_only and self._described is None:
            with suppress(EnvironmentProblem, DeviceFailure, ChildFailed):
                self._describe()
                with self._lock().held():
                    self._children.open_ahead()

    def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Make the cases, check the baseline and trivial answers, time the baseline.

        Calling again starts over. Retries once if a child process was killed externally. Raises
        :class:`ChildFailed` if one was lost with its fork server: another attempt may succeed.
        """
        began = time.time()
        result = self._begin(setup)
        if isinstance(result, Rejected) and result.code == Code.CRASH:
            result = self._begin(setup)
        oracle = self._oracle
        if oracle is not None and isinstance(result, Rejected):
            oracle.end_children()
        return BaselinePrepared(
            result=result,
            notes=oracle.notes if oracle else (),
            ceilings=self._prep.ceilings if self._prep else None,
            vitals=self._runner.vitals if self._runner else None,
            span=self._span(began),
        )

    def run(self, candidate: Candidate, cutoffs: Losses = ()) -> TrialFinished:
        """Verify and time one candidate on every tune shape that it is feasible for.

        Timings above the ``cutoffs`` of :mod:`tuner.racing` are cut short.

        Raises:
            ChildFailed: a child was lost with its fork server, and another attempt may succeed.
            EnvironmentProblem: the device failed its canary twice and is quarantined.
        """
        prep, _ = self._prepared()
        setup = prep.setup
        if refused := binary_rejection(candidate, setup.baseline, setup.experiment.template):
            return TrialFinished(
                trial=candidate.trial, outcome=refused, span=self._span(time.time())
            )
        at = time.time()
        with self._lock().held(pause=_PAUSE_SECONDS):
            began = time.monotonic()
            for _ in range(CHILD_ATTEMPTS):
                try:
                    runner = self._ready(candidate)
                    outcome = runner.trial(candidate, cutoffs)
                    break
                except ChildLost as failure:
                    outcome = rejected(failure, None)
                except ChildFailed:
                    self._drop()
                    raise
            seconds = time.monotonic() - began
        return TrialFinished(
            trial=candidate.trial,
            outcome=outcome,
            device_seconds=seconds,
            vitals=runner.vitals if isinstance(outcome, Measured) else None,
            span=self._span(at),
        )

    def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Check finalists on extra cases and time them against the baseline, in a fresh child.

        Raises:
            EnvironmentProblem: the baseline itself fails in it.
        """
        prep, oracle = self._prepared()
        began = time.time()
        ends = ExitStack()
        self._retire()
        with self._lock().shared():  # meanwhile the baseline runs for test cases
            self._children.open_ahead()
        self._examiner.begin(work, prep)

        def open_session() -> BenchSession:
            ends.close()
            self._children.settle()
            server = self._children.take()
            ends.callback(self._children.end, server.close)
            return BenchSession(server, prep, self._deadlines, self._rng, prep.bounds)

        try:
            confirmation = Confirmation(prep, oracle, open_session, self._lock(), self._rng)
            return replace(confirmation.run(work), span=self._span(began))
        finally:
            ends.close()

    def examine(self, work: ExamineWork) -> WinnersExamined:
        """Run winners under the checkers of this device, and the best under a profiler."""
        prep, oracle = self._prepared()
        oracle.settle()
        oracle.end_children()
        began = time.time()
        with self._lock().held():
            self._retire()
            found = self._examiner.examine(work, prep, oracle)
        return replace(found, span=self._span(began))

    def close(self) -> None:
        """End the children and free the device.

        Safe to call twice, and from another thread to abort a call.
        """
        self._closed.set()
        with self._guard:
            oracle = self._oracle
        self._children.close()
        self._examiner.close()
        if oracle is not None:
            oracle.close()
        if self._device_lock is not None:
            self._device_lock.close()
        self._folder.remove()

    def _span(self, began: float) -> Span:
        """What the device was used or waited for since ``began``, in Unix seconds."""
        waited = self._lock().waited_since() if self._described else 0.0
        return Span(worker=self.name, began=began, ended=time.time(), waited=waited)

    def _begin(self, setup: BenchSetup) -> tuple[Full, ...] | Rejected:
        self._forget()
        try:
            return self._prepare(setup)
        except SpecError as error:
            return Rejected(stage=Stage.VERIFY, code=Code.SPEC_ERROR, detail=str(error))

    def _prepare(self, setup: BenchSetup) -> tuple[Full, ...] | Rejected:
        prep = Preparation.of(setup, if_free(*self._describe()))
        for shape in prep.timed:
            cell = setup.baseline.plan.cells[shape]
            if isinstance(cell, Infeasible):
                detail = f"the baseline cannot be launched: {cell.reason}"
                return Rejected(
                    stage=Stage.LAUNCH, code=Code.LAUNCH_FAILED, detail=detail, shape=shape
                )
            if refused := too_large(prep, shape):
                return refused
        kernels = compiled_ahead(prep.device, known=self._describe()[1] in _MEASURED)
        answers = OracleFiles(prep, self._folder.path, self._closed)
        server = self._children.take()
        oracle = Oracle(prep, server, answers, self._deadlines, self._lock())
        with self._guard:
            self._prep, self._oracle = prep, oracle
        wanted = search_keys(prep)
        if not prep.device.is_cpu:  # where making them would disturb what is timed
            ahead = [*wanted, *changed_inputs(prep), *extra_keys(prep, "all")]
            oracle.make_ahead([key for key in ahead if fits_beside(prep, key[0])])
        if isinstance(first := oracle.case(*wanted[0]), Rejected):
            oracle.close()
            return first
        for (_, spec), case in zip(wanted, oracle.cases(wanted), strict=True):
            if isinstance(case, Rejected):
                return replace(case, detail=f"{case.detail} ({spec.described})")
            prep.cases[case.shape] = (*prep.cases.get(case.shape, ()), case)
        if refused := trivial_answer_rejection(
            {shape: prep.arguments[shape] for shape in prep.tune}, prep.cases
        ):
            return refused
        note_untested(prep, oracle)
        with self._lock().held():
            prep.ceilings = self._ceilings(server, oracle, kernels)
            if prep.ceilings is None or prep.device.is_cpu:  # idle on a GPU it disturbs nothing
                oracle.end_children()
            try:
                self._runner = TrialRunner(self._children.take(), prep, self._deadlines, self._rng)
                if not prep.device.is_cpu:
                    self._runner.rehearse()
                return tuple(self._runner.baseline(shape) for shape in prep.timed)
            except DeviceFailure as failure:
                self._drop()
                detail = f"the baseline itself fails in a second process: {failure.detail}"
                return replace(rejected(failure, None), detail=detail)

    def _ceilings(self, server: Supervisor, oracle: Oracle, kernels: Compile) -> Ceilings | None:
        """The device's ceilings, measured once in a process."""
        device, identity = self._describe()
        if identity not in _MEASURED:
            found = measure_ceilings(server, device, kernels)
            if isinstance(found, str):
                oracle.note(found)
                return None
            _MEASURED[identity] = found
        return _MEASURED[identity]

    def _ready(self, candidate: Candidate) -> TrialRunner:
        """A trial runner with a timed baseline; a new one if necessary.

        Raises:
            EnvironmentProblem: quarantined, now or before.
        """
        prep, _ = self._prepared()
        if self._quarantined:
            raise EnvironmentProblem(self._quarantined)
        runner = self._runner
        if runner and runner.alive and not runner.has_seen(candidate):
            try:
                runner.refresh()
            except DeviceFailure:
                self._drop()
            else:
                return runner
        reason = ""
        for _ in range(CANARY_ATTEMPTS):
            self._drop()
            try:
                self._runner = TrialRunner(self._children.take(), prep, self._deadlines, self._rng)
            except DeviceFailure as failure:
                reason = failure.detail
            else:
                return self._runner
        self._quarantined = (
            f"{self.name} is quarantined: the baseline failed in {CANARY_ATTEMPTS} new processes "
            f"in a row ({reason})"
        )
        raise EnvironmentProblem(self._quarantined)

    def _prepared(self) -> tuple[Preparation, Oracle]:
        if self._prep is None or self._oracle is None:
            raise EnvironmentProblem("the bench is not prepared")
        return self._prep, self._oracle

    def _describe(self) -> tuple[Device, str]:
        if self._described is None:
            server = self._children.take()
            try:
                self._described = server.describe()
            except (DeviceFailure, ChildFailed) as failure:
                server.close()
                if isinstance(failure, ChildFailed) and failure.how == "lost":
                    raise
                raise EnvironmentProblem(f"{self.name}: {failure.detail}") from None
            self._children.keep(server)
        return self._described

    def _drop(self) -> None:
        """End the child for trials."""
        if self._runner is not None:
            self._runner.end()
            self._runner = None

    def _retire(self) -> None:
        """End the child for trials, beside what follows."""
        if self._runner is not None:
            self._children.end(self._runner.end)
            self._runner = None

    def _forget(self) -> None:
        """Undo an earlier :meth:`prepare`."""
        self._drop()
        if self._oracle is not None:
            self._oracle.close()
        self._prep = self._oracle = None
        self._quarantined = ""

    def _lock(self) -> DeviceLock:
        if self._device_lock is None:
            self._device_lock = DeviceLock(self._describe()[1], self._closed)
        return self._device_lock
