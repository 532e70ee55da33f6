"""Runs a campaign: begins runs in order of priority, as many at once as there are GPUs for.

Each run is the command ``run`` or ``resume`` in a process of its own, so that none can end the
campaign, and each can be continued alone. Owns the budget. Knows neither Ray nor a terminal.
"""

import asyncio
import signal
import time
from asyncio.subprocess import STDOUT, Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cluster import child_command
from cluster.campaigns.folder import CampaignFolder, Ended
from cluster.campaigns.plan import LEAST_SECONDS, PlannedRun
from cluster.commands.results import is_over, is_running
from cluster.runs.run_layout import STOP_FILE
from tuner.errors import EnvironmentProblem, KernelwrightError
from tuner.files import write_whole
from tuner.run_directory import begun

TICK_SECONDS = 0.5
"""How often the budget is looked at."""

_SAYS = "kernelwright: "
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where runs go: the options for each, their environment, and how many GPUs there are now.

    ``gpus`` is ``None`` where runs go one after the other. ``command`` is ``kernelwright``.
    """

    options: tuple[str, ...]
    environment: Mapping[str, str]
    gpus: Callable[[], int] | None
    command: tuple[str, ...] = field(default_factory=child_command.kernelwright_command)


@dataclass(slots=True)
class _Going:
    """A run in a child process."""

    run: PlannedRun
    child: Process
    gpus: int
    since: float
    asked_to_stop: bool = False


class Schedule:
    """The runs of a campaign that are left, on their way.

    Args:
        folder: held by this process.
        places: where runs go.
        say: called with a line when a run begins or ends.

    Raises:
        EnvironmentProblem: another process works on one of the runs.
    """

    def __init__(self, folder: CampaignFolder, places: Places, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._places = places
        self._say = say
        self._going: list[_Going] = []
        runs = folder.record.campaign.runs
        if busy := [run.name for run in runs if is_running(folder.run_path(run))]:
            raise EnvironmentProblem(
                f"{folder.path}: processes of an earlier start work on {', '.join(busy)}: wait for "
                "them, or stop them with `kernelwright stop RUN`"
            )
        self._left = [run for run in runs if not _is_over(folder.run_path(run))]
        self._before = folder.record.spent
        self._since = time.monotonic()
        self.received: list[signal.Signals] = []
        """Signals that arrived."""

    async def follow(self) -> None:
        """Run what is left, until all ended, the time is over or a signal arrives.

        Raises:
            EnvironmentProblem: the campaign's folder cannot be written.
        """
        with self._signals():
            try:
                while self._going or self._may_begin():
                    for run in self._fitting():
                        await self._begin(run)
                    await self._wait()
            finally:
                await child_command.end([going.child for going in self._going])
                self._settle()

    @property
    def seconds_left(self) -> float | None:
        """Of the campaign's budget; ``None`` without one."""
        seconds = self._folder.record.campaign.seconds
        return None if seconds is None else seconds - self._spent()

    @property
    def _capacity(self) -> int:
        """How many GPUs all runs together may take now; one after the other takes one."""
        return max(1, self._places.gpus()) if self._places.gpus else 1

    def _spent(self) -> float:
        return self._before + time.monotonic() - self._since

    def _may_begin(self) -> bool:
        left = self.seconds_left
        return bool(self._left) and not self.received and (left is None or left >= LEAST_SECONDS)

    def _fitting(self) -> Iterator[PlannedRun]:
        """The next runs that there are GPUs for, each to be begun before the next is asked for."""
        while self._may_begin():
            capacity = self._capacity
            free = capacity - sum(going.gpus for going in self._going)
            if min(self._left[0].gpus, capacity) > free:
                return
            yield self._left.pop(0)

    async def _begin(self, run: PlannedRun) -> None:
        path = self._folder.run_path(run)
        capacity = self._capacity
        gpus = min(run.gpus, capacity)
        words = self._words(run, path, gpus, capacity)
        output = self._folder.output_path(run)
        try:
            with output.open("ab") as file:
                child = await child_command.begin(
                    (*self._places.command, *words),
                    output=file,
                    errors=STDOUT,
                    environment=self._places.environment,
                )
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {output}: {error.strerror}") from None
        self._going.append(_Going(run, child, gpus, time.monotonic()))
        if self.received:  # while it was started
            child_command.terminate([child])
        begins = "resumes" if words[0] == "resume" else "begins"
        self._say(f"{run.name}: {begins}; {len(self._left)} more to follow")

    def _words(self, run: PlannedRun, path: Path, gpus: int, capacity: int) -> list[str]:
        """The command line of a run, which continues what an earlier process left."""
        options = list(self._places.options)
        if self._places.gpus:
            options += ["--gpus", str(gpus), "--wait"]
        if begun(path):
            return ["resume", str(path), *options]
        if (seconds := self._seconds(run, gpus, capacity)) is not None:
            options += ["--seconds", f"{seconds:.1f}"]
        if run.trials is not None:
            options += ["--trials", str(run.trials)]
        if run.model is not None:
            options += ["--model", run.model]
        return ["run", run.spec, "--run-dir", str(path), *options]

    def _seconds(self, run: PlannedRun, gpus: int, capacity: int) -> float | None:
        """Its own time, or its share of what is left, if there is a budget."""
        left = self.seconds_left
        if left is None:
            return run.seconds
        if run.seconds is not None:
            return min(run.seconds, left)
        wanted = gpus + sum(min(other.gpus, capacity) for other in self._left)
        return left * min(1.0, capacity / wanted)

    async def _wait(self) -> None:
        """Wait for a child to end, for at most a tick, and note those that did."""
        waits = [asyncio.create_task(going.child.wait()) for going in self._going]
        if waits:
            _, pending = await asyncio.wait(
                waits, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for task in pending:
                task.cancel()
        left = self.seconds_left
        if left is not None and left <= 0:
            self._ask_to_stop()
        self._settle()

    def _ask_to_stop(self) -> None:
        """Have the runs confirm what they found, since the time is over."""
        for going in self._going:
            path = self._folder.run_path(going.run)
            if not going.asked_to_stop and begun(path):
                with suppress(EnvironmentProblem):
                    write_whole(path / STOP_FILE, "")
                going.asked_to_stop = True

    def _settle(self) -> None:
        """Note the runs whose processes ended."""
        for going in [one for one in self._going if one.child.returncode is not None]:
            self._going.remove(going)
            code = going.child.returncode
            assert code is not None, "it was looked at above"
            earlier = self._folder.record.ended.get(going.run.name)
            seconds = time.monotonic() - going.since + (earlier.seconds if earlier else 0.0)
            words = last_line(self._folder.output_path(going.run))
            ended = Ended(code=code, words=words, seconds=round(seconds, 1))
            self._folder.note(going.run, ended, spent=round(self._spent(), 1))
            self._say(f"{going.run.name}: {words or f'ended with {code}'}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the runs in order, a second one at once."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)

        def on_signal(number: signal.Signals) -> None:
            self.received.append(number)
            child_command.terminate([going.child for going in self._going])

        for number in numbers:
            loop.add_signal_handler(number, on_signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def _is_over(path: Path) -> bool:
    """Whether a run has finished; one whose directory is damaged has not."""
    try:
        return begun(path) and is_over(path)
    except KernelwrightError:
        return False


def last_line(output: Path) -> str:
    """The last message in a command's output, without the command's name."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    said = [line for line in text.splitlines() if line.startswith(_SAYS)]
    return said[-1].removeprefix(_SAYS) if said else ""
