"""A bench with one experiment prepared on it, for tests that try candidates of their own."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tuner.candidate import BASELINE, Candidate
from tuner.device import Device
from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork
from tuner.experiment.fields import BackendName
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    ConfirmScope,
    WinnersExamined,
)
from tuner.plan import Build, CellPlan, KernelStep, Plan
from tuner.space.lower import lower
from tuner.trial import Configuration, Outcome, Rejected
from workers.bench.deadlines import Deadlines
from workers.bench.device_bench import DeviceBench
from workers.bench.oracle import Oracle
from workers.bench.oracle_files import OracleFiles
from workers.bench.preparation import Preparation
from workers.bench.supervisor import Supervisor
from workers.compilers.worker import CompileWorker
from workers.device_lock import DeviceLock
from workers.devices.discover import list_devices

QUICK = Deadlines(launch=1.0, first=4.0)


@cache
def compiler(device: Device, kept: Path | None = None) -> CompileWorker:
    """A compile process for all laboratories on a device; it ends with this process."""
    return CompileWorker(device, kept)


def bench(language: BackendName, deadlines: Deadlines) -> DeviceBench:
    """A bench on the first device of a language."""
    return DeviceBench(language, 0, deadlines=deadlines, rng=np.random.default_rng(1))


lasting_bench = cache(bench)
"""One for many laboratories in turn; its children end with this process."""


class Laboratory:
    """A bench for an experiment's language, with its baseline ready.

    It ends with the laboratory unless it is ``lasting``. Binaries are kept in the folder
    ``binaries``, if any, for other processes.
    """

    def __init__(
        self,
        spec: Path | Experiment,
        *,
        secret: int = 7,
        deadlines: Deadlines = QUICK,
        binaries: Path | None = None,
        lasting: bool = False,
    ) -> None:
        self.experiment = spec if isinstance(spec, Experiment) else load_experiment(spec)
        make = lasting_bench if lasting else bench
        self.bench: DeviceBench = make(self.experiment.kernel.language, deadlines)
        self._lasting = lasting
        self.device: Device = self.bench.device()
        self.compiler = compiler(self.device, binaries)
        self.plan: Plan = lower(
            self.experiment,
            None,
            Configuration.of({}),
            every_shape(self.experiment),
            self.device,
        )
        self.setup = BenchSetup(
            experiment=self.experiment, baseline=self.compiled(BASELINE, self.plan), secret=secret
        )
        self.prepared: BaselinePrepared = self.bench.prepare(self.setup)

    def candidate(
        self,
        source: str,
        *,
        trial: int = 0,
        defines: Mapping[str, int] | None = None,
        **launch: object,
    ) -> Candidate | Rejected:
        """The baseline's plan with another source, macros, or launch (grid, block …)."""
        (build,) = self.plan.builds
        build = replace(
            build,
            file=f"candidate{Path(build.file).suffix}",
            source=source,
            defines=tuple((defines or {}).items()),
        )
        cells = tuple(
            replace(cell, steps=tuple(_launched(step, launch) for step in cell.steps))
            for cell in self.plan.cells
            if isinstance(cell, CellPlan)
        )
        plan = Plan(builds=(build,), cells=cells)
        result = self.compiler.compile(plan.builds)
        if isinstance(result, Rejected):
            return result
        return Candidate(
            trial=trial, configuration=Configuration.of({}), plan=plan, binaries=result
        )

    def compiled(self, trial: int, plan: Plan) -> Candidate:
        """A plan that must compile."""
        result = self.compiler.compile(plan.builds)
        assert not isinstance(result, Rejected), result
        return Candidate(
            trial=trial, configuration=Configuration.of({}), plan=plan, binaries=result
        )

    def outcome(self, source: str, **given: object) -> Outcome:
        """What becomes of a source: compiled, then benched."""
        candidate = self.candidate(source, **given)
        if isinstance(candidate, Rejected):
            return candidate
        return self.bench.run(candidate).outcome

    def confirmed(
        self, *finalists: Candidate, process: int = 0, scope: ConfirmScope = "all"
    ) -> ConfirmationSampled:
        """One process of confirmation."""
        extra = () if process else tuple(candidate.trial for candidate in finalists)
        return self.bench.confirm(
            ConfirmWork(process=process, scope=scope, finalists=finalists, extra_checks=extra)
        )

    def examined(self, *winners: Candidate) -> WinnersExamined:
        """What the checkers say of them."""
        return self.bench.examine(ExamineWork(winners=winners))

    def close(self) -> None:
        if not self._lasting:
            self.bench.close()


@contextmanager
def opened_oracle(laboratory: Laboratory, folder: Path) -> Iterator[tuple[Preparation, Oracle]]:
    """An oracle of one's own for a laboratory's experiment, with its files in a folder."""
    prep = Preparation.of(laboratory.setup, laboratory.device)
    files = OracleFiles(prep, folder, threading.Event())
    lock = DeviceLock("oracle", threading.Event())
    oracle = Oracle(prep, supervisor(folder), files, QUICK, lock)
    try:
        yield prep, oracle
    finally:
        oracle.close()


def supervisor(folder: Path) -> Supervisor:
    """A bench child of one's own on the device that the tests run on."""
    return Supervisor("opencl", 0, QUICK, folder)


def recorded_processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process of each burst from now on."""
    run_bursts, pids = Supervisor.run_bursts, []

    def record(supervisor, *given, **more):
        supervisor.start()
        pids.append(supervisor.pid)
        return run_bursts(supervisor, *given, **more)

    monkeypatch.setattr(Supervisor, "run_bursts", record)
    return pids


def opencl_device() -> Device:
    """The device that the tests run on."""
    (device,) = (found.device for found in list_devices(("opencl",)) if found.index == 0)
    assert device is not None
    return device


def build(source: str, *entries: str, **fields: object) -> Build:
    """An OpenCL build of one source."""
    return Build(language="opencl", file="test.cl", source=source, entries=entries, **fields)


def _launched(step: object, launch: Mapping[str, object]) -> object:
    return replace(step, **launch) if isinstance(step, KernelStep) else step
