"""One device's bench: the order of questions, and what a failure means for what comes next.

Used unchanged by the local fleet's thread and by the Ray actor. The device is touched only by child
processes (:mod:`workers.bench.supervisor`): a working one for trials, one for the oracle, and a
fresh one for each confirmation.
"""

import filecmp
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.candidate import Candidate
from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.arguments import ResolvedArgument, resolve_arguments
from tuner.experiment.odd_shapes import every_shape
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
from workers.bench.ceilings import measure_ceilings
from workers.bench.confirmation import Confirmation, recipes_of
from workers.bench.oracle import FIRST, Oracle, Recipe
from workers.bench.oracle_files import Answers
from workers.bench.preparation import Prep
from workers.bench.session import Stand
from workers.bench.supervisor import Deadlines, LostChild, Supervisor
from workers.bench.trial_runner import Working
from workers.checkers.examination import Site, examine, profile
from workers.child_environment import private_environment
from workers.compilers.worker import CompileWorker
from workers.devices.port import DeviceFailure
from workers.inputs import can_renew, is_foreign
from workers.integrity.launch_checks import Question, rejected
from workers.integrity.trivial_answers import proves_nothing
from workers.scratch import PrivateFolder, device_lock

FLIPPED = Recipe(label="some elements changed", flip=True)
FRESH = Recipe(label="fresh inputs", seed="fresh")
REPEATED = Recipe(label="three launches in a row", launches=3)
_SWITCH_SECONDS = 0.0001
"""Between two threads of this process: a bench's thread must not wait for another, a driver's or
one of Ray's, in each of its dozens of requests to the child, for as long as the interpreter's 5 ms.
"""
COPIES = 4
"""Of a shape's arguments in a device's memory at least: two stagings, each with its image."""
LIVES = 2
"""In how many children a candidate is tried whose child was lost, maybe through no fault of it."""
CANARIES = 2
"""Failures in a row of the baseline in new children after which a device is quarantined."""

_MEASURED: dict[str, Ceilings] = {}
"""The ceilings of the devices that this process has measured, by identity."""


class Bench:
    """One device's bench: synchronous, for one thread at a time; raises only machinery failures.

    The device is locked host-wide during each of :meth:`prepare`, :meth:`run`, :meth:`confirm` and
    :meth:`examine`, so that several benches, also of other runs, may share it without disturbing
    each other's times.
    """

    def __init__(self, backend: str, index: int, *, deadlines: Deadlines | None = None) -> None:
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._backend = backend
        self._index = index
        self._deadlines = deadlines or Deadlines()
        self._folder = PrivateFolder("bench")
        self._described: tuple[Device, str] | None = None
        self._prep: Prep | None = None
        self._oracle: Oracle | None = None
        self._working: Working | None = None
        self._quarantined = ""
        self._servers: list[Supervisor] = []
        self._spare: Supervisor | None = None
        self._rng = np.random.default_rng()
        self._closed = threading.Event()
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """Host and device: the worker of every span.

        By the device's identity once it is known, since each Ray actor sees its GPU as index 0.
        """
        device = self._described[1] if self._described else f"{self._backend}{self._index}"
        return f"{socket.gethostname()}/{device}"

    def device(self) -> Device:
        """The device's model and limits.

        Raises:
            EnvironmentProblem: no such device, no driver or no package for it.
        """
        return self._describe()[0]

    def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Make the oracles, check the baseline and the probes, time the baseline.

        What is made here serves every later call; calling again starts over. A process that dies
        meanwhile is no reason yet to end a run: somebody else may have killed it.
        """
        with self._locked():
            began = time.time()
            result = self._begin(setup)
            if isinstance(result, Rejected) and result.code == Code.CRASH:
                result = self._begin(setup)
            oracle = self._oracle
            if oracle is not None:
                oracle.rest()
            return BaselinePrepared(
                result=result,
                notes=oracle.notes if oracle else (),
                ceilings=self._prep.ceilings if self._prep else None,
                vitals=self._working.vitals if self._working else None,
                span=self._span(began),
            )

    def run(self, candidate: Candidate, cutoffs: Losses = ()) -> TrialFinished:
        """Verify and time one candidate on every tune shape it is feasible for.

        Cells above the ``cutoffs`` of :mod:`tuner.racing` are given up.

        Raises:
            EnvironmentProblem: the device failed its canary twice and is quarantined.
        """
        prep, _ = self._prepared()
        if refused := binary_rejection(candidate, prep.setup.baseline):
            return TrialFinished(
                trial=candidate.trial, outcome=refused, span=self._span(time.time())
            )
        with self._locked():
            began, at = time.monotonic(), time.time()
            for _ in range(LIVES):
                working = self._ready(candidate)
                try:
                    outcome = working.trial(candidate, cutoffs)
                    break
                except LostChild as failure:
                    outcome = rejected(failure, None)
            seconds = time.monotonic() - began
        return TrialFinished(
            trial=candidate.trial,
            outcome=outcome,
            device_seconds=seconds,
            vitals=working.vitals if isinstance(outcome, Measured) else None,
            span=Span(worker=self.name, began=at, ended=at + seconds),
        )

    def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Check finalists harder, then time them and the baseline interleaved, in a fresh child.

        Raises:
            EnvironmentProblem: the baseline itself fails in it.
        """
        prep, oracle = self._prepared()
        with self._locked():
            began = time.time()
            self._drop()
            server = self._server()

            def open_stand() -> Stand:
                server.kill()
                return Stand(
                    server,
                    prep.arguments,
                    self._deadlines,
                    prep.device,
                    self._rng,
                    prep.bounds,
                )

            try:
                sampled = Confirmation(prep, oracle, open_stand, self._rng).run(work)
                return replace(sampled, span=self._span(began))
            finally:
                server.close()
                oracle.rest()

    def examine(self, work: ExamineWork) -> WinnersExamined:
        """Put winners under the memory and race checkers, and the best of them under a profiler."""
        prep, _ = self._prepared()
        with self._locked():
            began = time.time()
            self._drop()
            site = Site(
                device=prep.device,
                index=self._index,
                arguments=prep.arguments,
                contents=self._contents,
                folder=self._folder.path,
                abort=self._closed,
            )
            failed, notes = examine(work.winners, site)
            profiles = []
            sound = [one for one in work.winners if one.trial not in failed]
            for best in sound[:1]:
                found = profile(best, site)
                if isinstance(found, str):
                    notes = (*notes, found)
                elif found is not None:
                    profiles.append(found)
        return WinnersExamined(
            work=work.id,
            trials=work.trials,
            failed=tuple(failed.items()),
            notes=notes,
            profiles=tuple(profiles),
            span=self._span(began),
        )

    def close(self) -> None:
        """End the children and free the device.

        Safe to call twice, and from another thread to abort a call.
        """
        self._closed.set()
        with self._guard:
            servers, oracle = list(self._servers), self._oracle
        for server in servers:
            server.close()
        if oracle is not None:
            oracle.close()
        self._folder.remove()

    def _span(self, began: float) -> Span:
        """What the device was held for since ``began``, in Unix seconds."""
        return Span(worker=self.name, began=began, ended=time.time())

    def _begin(self, setup: BenchSetup) -> tuple[Full, ...] | Rejected:
        self._forget()
        try:
            return self._prepare(setup)
        except SpecError as error:
            return Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail=str(error))

    def _prepare(self, setup: BenchSetup) -> tuple[Full, ...] | Rejected:
        bindings = every_shape(setup.experiment)
        arguments = {
            shape: resolve_arguments(setup.experiment, binding.symbols)
            for shape, binding in enumerate(bindings)
        }
        prep = Prep(setup=setup, device=self.device(), bindings=bindings, arguments=arguments)
        for shape in prep.timed:
            cell = setup.baseline.plan.cells[shape]
            if isinstance(cell, Infeasible):
                detail = f"the baseline cannot be launched: {cell.reason}"
                return Rejected(
                    stage=Stage.LAUNCH, code=Code.LAUNCH_FAILED, detail=detail, shape=shape
                )
            if refused := _too_large(prep, shape):
                return refused
        answers = Answers(prep, self._folder.path, self._closed)
        server = self._server()
        oracle = Oracle(prep, server, answers, self._deadlines)
        with self._guard:
            self._prep, self._oracle = prep, oracle
        wanted = [
            (shape, recipe)
            for shape in prep.timed
            for recipe in (_recipes(arguments[shape]) if shape in prep.tune else (FIRST, FRESH))
        ]
        first = oracle.ask(*wanted[0])
        for question in (first,) if isinstance(first, Rejected) else oracle.ask_all(wanted):
            if isinstance(question, Rejected):
                return question
            known = prep.questions.get(question.shape, ())
            prep.questions[question.shape] = (*known, question)
        if refused := proves_nothing(
            {shape: arguments[shape] for shape in prep.tune}, prep.questions
        ):
            return refused
        self._look_at_inputs(prep, oracle)
        prep.ceilings = self._ceilings(server, oracle)
        oracle.rest()
        try:
            self._working = Working(self._server(), prep, self._deadlines, self._rng)
            if not prep.device.is_cpu:
                self._working.rehearse()
            return tuple(self._working.baseline(shape) for shape in prep.timed)
        except DeviceFailure as failure:
            self._drop()
            detail = f"the baseline itself fails in a second process: {failure.detail}"
            return replace(rejected(failure, None), detail=detail)

    def _ceilings(self, server: Supervisor, oracle: Oracle) -> Ceilings | None:
        """What the device can do at most, measured once in a process."""
        device, identity = self._describe()
        if identity not in _MEASURED:
            with CompileWorker(device) as compiler:
                found = measure_ceilings(server, device, compiler.compile)
            if isinstance(found, str):
                oracle.note(found)
                return None
            _MEASURED[identity] = found
        return _MEASURED[identity]

    def _contents(self, shape: int) -> Mapping[str, str] | None:
        """Inputs of a shape for a checker, if the baseline has an answer there."""
        prep, oracle = self._prepared()
        recipe = FIRST if shape in prep.timed else recipes_of(prep, shape)[0]
        question = oracle.ask(shape, recipe)
        oracle.rest()
        return question.contents if isinstance(question, Question) else None

    def _look_at_inputs(self, prep: Prep, oracle: Oracle) -> None:
        """Note each input that does not change the first shape's answer, or does not itself."""
        first = prep.questions[0][0]
        inputs = [a for a in prep.arguments[0] if a.name in first.contents]
        constant: list[ResolvedArgument] = []
        for argument in inputs:
            recipe = Recipe(label=f"{argument.name} drawn anew", redraw=argument.name)
            other = oracle.ask(0, recipe)
            if not isinstance(other, Question):
                continue
            was, now = (Path(one.contents[argument.name]) for one in (first, other))
            if filecmp.cmp(was, now, shallow=False):
                constant.append(argument)
            elif all(
                np.array_equal(want, other.wants[name], equal_nan=True)
                for name, want in first.wants.items()
            ):
                oracle.note(f"input {argument.name} does not change the result")
        if len(constant) == len(inputs):
            oracle.note("no input ever changes: a kernel that kept its first answer would be right")
            return
        for argument in constant:
            if is_foreign(argument) and not can_renew(argument):
                oracle.note(
                    f"input {argument.name} never changes: a kernel that remembers what follows "
                    "from it would not be found out"
                )

    def _ready(self, candidate: Candidate) -> Working:
        """A working child whose baseline is timed; a new one where there is none.

        Raises:
            EnvironmentProblem: quarantined, now or before.
        """
        prep, _ = self._prepared()
        if self._quarantined:
            raise EnvironmentProblem(self._quarantined)
        working = self._working
        if working and working.alive and not working.has_seen(candidate):
            try:
                working.refresh()
            except DeviceFailure:
                self._drop()
            else:
                return working
        reason = ""
        for _ in range(CANARIES):
            self._drop()
            try:
                self._working = Working(self._server(), prep, self._deadlines, self._rng)
            except DeviceFailure as failure:
                reason = failure.detail
            else:
                return self._working
        self._quarantined = (
            f"{self.name} is quarantined: the baseline failed in {CANARIES} new processes "
            f"in a row ({reason})"
        )
        raise EnvironmentProblem(self._quarantined)

    def _prepared(self) -> tuple[Prep, Oracle]:
        if self._prep is None or self._oracle is None:
            raise EnvironmentProblem("the bench was asked before it was prepared")
        return self._prep, self._oracle

    def _describe(self) -> tuple[Device, str]:
        if self._described is None:
            server = self._server()
            try:
                self._described = server.describe()
            except DeviceFailure as failure:
                server.close()
                raise EnvironmentProblem(f"{self.name}: {failure.detail}") from None
            self._spare = server
        return self._described

    def _server(self) -> Supervisor:
        """The supervisor of a child that has done nothing yet; :meth:`close` ends it too."""
        environment = private_environment(self._backend, self._folder.path / "cache")
        with self._guard:
            if self._closed.is_set():
                raise EnvironmentProblem(f"{self.name} is closed")
            spare, self._spare = self._spare, None
            if spare is not None:
                return spare
            server = Supervisor(self._backend, self._index, self._deadlines, environment)
            self._servers = [*(s for s in self._servers if not s.closed), server]
        return server

    def _drop(self) -> None:
        """End the working child."""
        if self._working is not None:
            self._working.end()
            self._working = None

    def _forget(self) -> None:
        """Undo an earlier :meth:`prepare`."""
        self._drop()
        if self._oracle is not None:
            self._oracle.close()
        self._prep = self._oracle = None
        self._quarantined = ""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with device_lock(self._describe()[1], self._closed):
            yield


def _recipes(arguments: Sequence[ResolvedArgument]) -> tuple[Recipe, ...]:
    """The questions of a tune shape; the last is on inputs that nobody has seen.

    What works in place is launched in a row while it is timed, so it is asked about that too: one
    that knows its own last output could do nothing from the second launch on.
    """
    in_place = any(argument.kind == "inout" for argument in arguments)
    return (FIRST, FLIPPED, *((REPEATED,) if in_place else ()), FRESH)


def _too_large(prep: Prep, shape: int) -> Rejected | None:
    """Why a shape's arguments cannot be staged, before any time is spent on filling them."""
    size = sum(a.size for a in prep.arguments[shape] if a.is_buffer)
    room = prep.device.memory_bytes
    if COPIES * size <= room:
        return None
    detail = (
        f"the arguments of {prep.bindings[shape]} take {size / 2**30:.3g} GiB, and {COPIES} copies "
        f"are needed, where the device has {room / 2**30:.3g} GiB: take smaller shapes"
    )
    return Rejected(stage=Stage.LIMITS, code=Code.OUT_OF_MEMORY, detail=detail, shape=shape)
