"""Runs of the real engine over a simulated fleet, in one thread, on a virtual clock.

The journal is a list, and a process can be killed after any number of facts.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.device import Device
from tuner.engine.engine import Engine
from tuner.engine.session import Session, StopReason
from tuner.experiment.fields import Source
from tuner.experiment.model import (
    Argument,
    ConfirmSettings,
    Experiment,
    Kernel,
    Launch,
    SearchSettings,
    ShapeBinding,
    Shapes,
    Template,
)
from tuner.expressions import Expression
from tuner.journal.facts import Entry, EpochOpened, Fact, IncumbentEntered, TrialProposed
from tuner.journal.history import History
from tuner.search.port import Losses
from tuner.trial import Configuration

GPU = cuda_device(90)
CPU = opencl_cpu()
BASELINE_NS = (1000.0, 2000.0, 4000.0)
SIZE = 200
IDLE_STEPS = 1000


def experiment(
    trials: int = 12,
    seconds: float = 1e6,
    top: int = 2,
    processes: int = 3,
    constraints: Iterable[str] = (),
) -> Experiment:
    return Experiment(
        version=1,
        name="simulated",
        kernel=Kernel(
            language="cuda",
            source=Source(name="copy.cu", text="void copy(float *out, int n) {}"),
            entry="copy",
            launch=Launch(grid=(Expression.parse("n"),), block=(Expression.parse(64),)),
        ),
        arguments=(
            Argument(name="out", kind="out", dtype="float32", shape=(Expression.parse("n"),)),
            Argument(name="n", kind="scalar", dtype="int32", value=Expression.parse("n")),
        ),
        shapes=Shapes(
            tune=(ShapeBinding({"n": 256}), ShapeBinding({"n": 1024}, weight=2.0)),
            held_out=(ShapeBinding({"n": 4096}),),
        ),
        template=Template(
            source=Source(name="family.cu", text="void family(float *out, int n) { out[x] = n; }"),
            entry="family",
            parameters={"x": tuple(range(SIZE))},
            constraints=tuple(map(Expression.parse, constraints)),
            launch=Launch(grid=(Expression.parse("n"),), block=(Expression.parse(64),)),
        ),
        search=SearchSettings(trials=trials, seconds=seconds),
        confirm=ConfirmSettings(top=top, processes=processes),
    )


def cost(configuration: Configuration, shape: int) -> float:
    """A bowl around x = 11, whose bottom moves a little with the shape."""
    x = configuration.as_dict()["x"]
    assert isinstance(x, int)
    return BASELINE_NS[shape] * (0.5 + 0.002 * (x - 11 - shape) ** 2)


class Sensitive:
    """A proposer whose every answer depends on all that it was told."""

    def __init__(self, size: int = SIZE) -> None:
        self._left = set(range(size))
        self._told: dict[int, Losses | None] = {}
        self.asked: list[int] = []

    def ask(self, trial: int) -> Configuration | None:
        self.asked.append(trial)
        if not self._left:
            return None
        seen = json.dumps([trial, sorted(self._told.items())]).encode()
        pick = int(hashlib.sha256(seen).hexdigest(), 16) % len(self._left)
        configuration = Configuration.of({"x": sorted(self._left)[pick]})
        self.record(trial, configuration)
        return configuration

    def record(self, trial: int, configuration: Configuration) -> None:
        value = configuration.as_dict()["x"]
        assert isinstance(value, int)
        self._left.remove(value)

    def tell(self, trial: int, losses: Losses | None) -> None:
        assert trial not in self._told, f"trial {trial} was told twice"
        self._told[trial] = losses


class KilledError(Exception):
    """The process ends here; nothing but the journal is left."""


@dataclass
class Run:
    """What outlives a process: the journal. ``kill_after`` facts, the next process dies."""

    experiment: Experiment
    device: Device = GPU
    environment: str = "one"
    proposer_size: int = SIZE
    incumbents: tuple[IncumbentEntered, ...] = ()
    rest: bool = True
    profile: bool = False
    reserve: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    kill_after: int | None = None

    @property
    def facts(self) -> list[Fact]:
        return [entry.fact for entry in self.entries]

    def drive(
        self,
        fleet: SimulatedFleet,
        stops: Iterable[StopReason | None] = (),
    ) -> Session:
        """One process: from the journal as it stands to its end; ``stops`` come in between."""
        return asyncio.run(self._process(fleet, stops))

    async def _process(self, fleet: SimulatedFleet, stops: Iterable[StopReason | None]) -> Session:
        async def opener() -> SimulatedFleet:
            return fleet

        engine = Engine(opener, clock=fleet.now, wall=fleet.now)
        await engine.fleet()
        history = History.of(self.experiment, self.entries)
        proposer = Sensitive(self.proposer_size)
        for fact in self.facts:
            if isinstance(fact, TrialProposed):
                proposer.record(fact.trial, fact.configuration)
        opened = EpochOpened(
            device=self.device,
            environment=self.environment,
            compile_slots=fleet.compile_slots,
            bench_slots=fleet.bench_slots,
        )
        for fact in (opened, *self.incumbents[len(history.incumbents) :]):
            history.apply(engine.append(self, fact))
        session, reasons = (
            Session(
                history,
                secret=1,
                rest=self.rest,
                profile=self.profile,
                reserve=lambda _: self.reserve,
            ),
            iter(stops),
        )
        idle, known = 0, 0
        async with aclosing(engine.drive(session, self, proposer)) as steps:
            async for _ in steps:
                idle, known = 0 if len(self.entries) > known else idle + 1, len(self.entries)
                assert idle < IDLE_STEPS, "the session waits for nothing"
                if reason := next(reasons, None):
                    session.stop(reason)
        return session

    def append(self, *entries: Entry) -> None:
        for entry in entries:
            if self.kill_after is not None and len(self.entries) >= self.kill_after:
                raise KilledError
            self.entries.append(entry)

    def sync(self) -> None:
        pass


def fleet(device: Device = GPU, **options: object) -> SimulatedFleet:
    base = SimulatedFleet(device=device, baseline_ns=BASELINE_NS, cost=cost, noise=0.02)
    return replace(base, **options)
