"""One process's work on a run with agents: rounds over one fleet, until the loop ends.

The counterpart of :class:`cluster.runs.search_run.SearchRun`, with the same interface. Owns the
layout of such a run: ``journal.jsonl`` holds all work outside searches, ``llm/`` the loop's steps,
``rounds/NN`` each round's search, ``variants/`` every template, ``rounds.json`` how it ended and
``transcript.jsonl`` what the models said. Knows no terminal.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from agents.call_costs import calls_csv
from agents.loop import Ending, run_rounds
from agents.patterns.store import read_patterns
from agents.planning import Task, least_times
from agents.rounds_summary import STEPS, discard_summary, write_summary
from agents.settings import AgentSettings, agent_settings
from agents.step_journal import StepFiles, Steps, recorded_exchanges
from agents.variants import write_variants
from cluster.cli.console import Activity, Update
from cluster.runs.budget import run_estimate
from cluster.runs.evaluator import BASELINES, Baseline, EngineEvaluator
from cluster.runs.model_choice import ModelAccess, StoppableModel, keep_transcript, open_model
from cluster.runs.run_layout import round_path
from cluster.runs.run_process import RunProcess, StopRequests
from cluster.runs.search_run import EXPORT, PATTERNS_FILE, SearchRun, derived
from tuner.backends.registry import traits_of
from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.engine import TICK_SECONDS, Engine
from tuner.engine.session import StopReason
from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Experiment
from tuner.files import UnreadableFile, read_bounded
from tuner.run_directory import RunDirectory, RunView

_EXPORT_BYTES = 64 << 20
BASELINE_STEP = "baseline"
"""The loop's step in which the kernel as it stands is compiled and timed."""


def open_run(process: RunProcess, access: ModelAccess) -> "SearchRun | AgentRun":
    """The work on a run directory, with or without agents."""
    if RunView.open(process.path).experiment.agents is None:
        return SearchRun(process)
    return AgentRun(process, access)


class AgentRun:
    """A run with agents that this process goes on with, from whatever its steps say.

    Args:
        process: its run directory's experiment names a model and has no template.
        access: how to reach the model.
    """

    def __init__(self, process: RunProcess, access: ModelAccess) -> None:
        self._process = process
        self._path, self._claim = process.path, process.claim
        self._access = access
        self._asked = StopRequests(process.path)
        self._task: asyncio.Task[None] | None = None

    def stop(self, reason: StopReason) -> None:
        """Ask for an end: ``stopped`` confirms what was found, ``interrupted`` leaves at once."""
        self._asked.add(reason)
        if reason == "interrupted" and self._task is not None:
            self._task.cancel()

    async def progress(self) -> AsyncIterator[Update]:
        """Go on until the loop ends or was told to, yielding what it is busy with.

        Raises:
            KernelwrightError: spec or machine do not allow it; everything finished is kept.
        """
        async with self._process.opened() as (directory, engine):
            self._asked.begin()
            shown: asyncio.Queue[Update | None] = asyncio.Queue()
            work = asyncio.create_task(self._work(directory, engine, shown))
            watch = asyncio.create_task(self._watch(engine, shown))
            self._task = work
            work.add_done_callback(lambda _: shown.put_nowait(None))
            try:
                while (one := await shown.get()) is not None:
                    yield one
                if self._asked() != "interrupted":
                    await work
            finally:
                watch.cancel()
                work.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await work

    async def _watch(self, engine: Engine, shown: "asyncio.Queue[Update | None]") -> None:
        """Show what devices are waited for, and end a step that waits when that is asked for.

        One that waits for a model ends when the stop file says *now*.
        """
        said = ""
        while not (asked := self._asked()) or (asked == "stopped" and not self._claim.words):
            if said != (said := self._claim.words or engine.benches_waiting) and said:
                shown.put_nowait(Activity(words=said))
            await asyncio.sleep(TICK_SECONDS)
        self.stop("interrupted")

    async def _work(
        self, directory: RunDirectory, engine: Engine, shown: "asyncio.Queue[Update | None]"
    ) -> None:
        experiment = directory.experiment
        agents = agent_settings(experiment) or AgentSettings()
        steps = StepFiles(self._path / STEPS)
        model = open_model(
            self._path, agents, self._access, lambda words: shown.put_nowait(Activity(words=words))
        )
        with directory.journal() as journal:
            evaluator = EngineEvaluator(
                engine,
                directory,
                journal,
                shown.put_nowait,
                self._asked,
                profile=agents.model != "replay",
            )

            async def first() -> Baseline:
                await model.ready()
                expected = run_estimate(experiment, await engine.fleet(), rounds=agents.rounds)
                expected.require_time()
                words = f"compiling, checking and timing the baseline; then {expected.prospect}"
                shown.put_nowait(Activity(round=1, words=words))
                return await evaluator.baseline()

            baseline = await Steps(steps, time.monotonic).take(BASELINE_STEP, BASELINES, first)
            discard_summary(self._path)
            ending = await run_rounds(
                loop_task(self._path, experiment, agents, baseline),
                StoppableModel(
                    model,
                    self._path / STEPS,
                    shown.put_nowait,
                    self._asked,
                    engine,
                    journal,
                    lambda: self._claim.gives_back and not agents.overlap,
                ),
                evaluator,
                steps,
            )
        _keep(directory, ending)


def loop_task(run: Path, experiment: Experiment, agents: AgentSettings, baseline: Baseline) -> Task:
    """What the loop of rounds is given; measured ceilings come before known ones."""
    device, ceilings = baseline.device, baseline.ceilings
    return Task(
        experiment=experiment,
        device=device,
        baseline_us=baseline.times_us,
        floor_us=least_times(
            experiment,
            bytes_per_second=_memory_rate(experiment, device, ceilings),
            launch_us=ceilings.launch_ns / 1000
            if ceilings
            else traits_of(device.backend).launch_floor_us,
        ),
        static=baseline.static,
        agents=agents,
        patterns=read_patterns(run / PATTERNS_FILE),
    )


def _memory_rate(experiment: Experiment, device: Device, ceilings: Ceilings | None) -> float | None:
    """Measured copy bandwidth, else the peak, where a kernel must go through the memory."""
    if experiment.measure.cache == "hot" or device.is_cpu:
        return None
    if ceilings is not None:
        return ceilings.copy_bytes_per_second
    return device.memory_bytes_per_second or None


def _keep(directory: RunDirectory, ending: Ending) -> None:
    """What can be rebuilt from the steps at any time."""
    path, experiment = directory.path, directory.experiment
    summary = ending.summary
    with derived():
        write_variants(path / "variants", ending.state.variants)
        directory.write("calls.csv", calls_csv(recorded_exchanges(path / STEPS)))
        agents = agent_settings(experiment) or AgentSettings()
        keep_transcript(path, experiment, agents.model, f"in run {directory.info.run}")
    if summary.searched is not None:
        exported = round_path(path, summary.searched, summary.suffix) / EXPORT
        for file in (one for one in exported.glob("*") if not one.is_dir()):
            try:
                text = read_bounded(file, _EXPORT_BYTES)
            except UnreadableFile as error:
                raise EnvironmentProblem(f"{file} {error}: move it away and resume") from error
            with derived():
                directory.write(f"{EXPORT}/{file.name}", text or "")
    write_summary(path, summary)
