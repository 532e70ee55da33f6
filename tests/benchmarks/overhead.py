"""What the driver itself costs: seconds a trial and memory, over a fleet that answers at once.

Usage: python -m tests.benchmarks.overhead [--trials 100000] [--json FILE]

Everything but the devices is real: session, driver, journal on disk, and a proposer over a space
of as many points. The virtual clock costs a little too, and counts against us.
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tests.tuner.space.devices import cuda_device
from tests.tuner.space.experiments import experiment, launch, template
from tuner.engine.engine import Engine
from tuner.engine.session import Session
from tuner.experiment.model import ConfirmSettings, Experiment, SearchSettings
from tuner.journal.facts import EpochOpened
from tuner.journal.file import Journal
from tuner.journal.history import History
from tuner.search.select import make_proposer
from tuner.space.feasible import feasible_set

GPU = cuda_device(90)
BASELINE_NS = (1000.0, 2000.0)
PARAMETERS = {"B": (32, 64, 128, 256), "U": tuple(range(1, 101)), "V": tuple(range(250))}


def rehearsed(trials: int) -> Experiment:
    """An experiment with a space of 100,000 points and two shapes."""
    family = template(PARAMETERS, steps=(launch(block=("B",)),))
    return replace(
        experiment({"n": 256}, {"n": 4096}),
        template=family,
        search=SearchSettings(strategy="exhaustive", trials=trials, seconds=1e9),
        confirm=ConfirmSettings(top=2, processes=2),
    )


def cost(configuration, shape):
    """Nanoseconds, of no consequence."""
    values = configuration.as_dict()
    return BASELINE_NS[shape] * (0.5 + 0.01 * values["U"] + 0.001 * values["V"])


class TimedJournal(Journal):
    """Counts the seconds that it waits for the disk: they are not the engine's, and overlap."""

    waited = 0.0

    def sync(self):
        """Sync, and count."""
        began = time.perf_counter()
        Journal.sync(self)
        self.waited += time.perf_counter() - began


def rehearse(problem: Experiment, fleet: SimulatedFleet, path: Path) -> tuple[History, float]:
    """A run to its end over a simulated fleet, journalled at ``path``; and seconds of syncing."""
    space = feasible_set(problem, problem.template, fleet.device)
    proposer = make_proposer(SearchSettings(strategy="random"), space)
    history = History(problem)

    async def opener() -> SimulatedFleet:
        return fleet

    async def drive() -> float:
        engine = Engine(opener)
        await engine.fleet()
        opened = EpochOpened(
            device=fleet.device,
            environment="simulated",
            compile_slots=fleet.compile_slots,
            bench_slots=fleet.bench_slots,
        )
        with TimedJournal(path) as journal:
            history.apply(engine.append(journal, opened))
            async for _ in engine.drive(Session(history, secret=1), journal, proposer):
                pass
            return journal.waited

    return history, asyncio.run(drive())


class ForgetfulFleet(SimulatedFleet):
    """Keeps no work for tests to look at: it would count as memory."""

    def submit(self, work):
        SimulatedFleet.submit(self, work)
        self.submitted.clear()


def measure(trials: int) -> dict[str, float]:
    """Milliseconds a trial, without and for waiting for the disk; MiB of process and journal."""
    problem = rehearsed(trials)
    fleet = ForgetfulFleet(
        device=GPU, baseline_ns=BASELINE_NS, cost=cost, compile_slots=15, bench_slots=1
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        began, worked = time.perf_counter(), time.process_time()
        history, waited = rehearse(problem, fleet, path)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
        written = path.stat().st_size
    assert history.finished
    assert len(history.trials) == trials
    return {
        "trials": trials,
        "ms_per_trial": 1e3 * (seconds - waited) / trials,
        "cpu_ms_per_trial": 1e3 * worked / trials,
        "sync_ms_per_trial": 1e3 * waited / trials,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "journal_mib": written / 2**20,
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a table; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = measure(given.trials)
    for name, value in found.items():
        print(f"{name:>18}  {value:,.3f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
