"""One fleet for several sessions, one after the other: nothing of one reaches the next.

Owns when the fleet is brought up, the count of what is still to be answered, and the baseline's
preparation, which sessions of one kernel share. Knows nothing of rounds or models.
"""

from collections.abc import Awaitable, Callable

from cluster.driver import TICK_SECONDS
from tuner.device import Device
from tuner.engine.fleet import Answer, BenchJob, Fleet, Job, Lost, Prepared, PrepareJob
from tuner.experiment.model import Experiment

_Preparation = tuple[Experiment, int]
"""What decides how a baseline is prepared: of its experiment, and the secret of its inputs."""


class SharedFleet:
    """Port :class:`tuner.engine.fleet.Fleet` over another fleet.

    Args:
        open_fleet: brings the other one up; called when work for it comes first, so that a run
            which only awaits a reply holds no device.
    """

    def __init__(self, open_fleet: Callable[[], Awaitable[Fleet]]) -> None:
        self._open_fleet = open_fleet
        self._opened: Fleet | None = None
        self._owed = 0
        self._preparing: _Preparation | None = None
        self._prepared: tuple[_Preparation, Prepared] | None = None
        self._known: list[Answer] = []

    async def bring_up(self) -> None:
        """Have the fleet there; before anything else is asked of it."""
        if self._opened is None:
            self._opened = await self._open_fleet()

    @property
    def _fleet(self) -> Fleet:
        assert self._opened is not None, "bring_up() comes first"
        return self._opened

    @property
    def device(self) -> Device:
        """The fleet's."""
        return self._fleet.device

    @property
    def compile_slots(self) -> int:
        """The fleet's."""
        return self._fleet.compile_slots

    @property
    def bench_slots(self) -> int:
        """The fleet's."""
        return self._fleet.bench_slots

    def now(self) -> float:
        """Seconds on the fleet's clock."""
        return self._fleet.now()

    def submit(self, job: Job) -> None:
        """Pass the job on, unless its answer is known: a baseline is prepared once."""
        if isinstance(job, PrepareJob):
            self._preparing = job.setup.prepares, job.setup.secret
            if self._prepared and self._prepared[0] == self._preparing:
                self._known.append(self._prepared[1])
                return
        self._owed += len(job.candidates) if isinstance(job, BenchJob) else 1
        self._fleet.submit(job)

    async def answers(self, timeout: float) -> tuple[Answer, ...]:
        """Known answers at once, else the fleet's."""
        if self._known:
            known, self._known = tuple(self._known), []
            return known
        answers = await self._fleet.answers(timeout)
        for answer in answers:
            lost = answer.job if isinstance(answer, Lost) else None
            self._owed -= len(lost.candidates) if isinstance(lost, BenchJob) else 1
            if isinstance(answer, Prepared) and self._preparing:
                self._prepared = (self._preparing, answer)
        return answers

    async def settle(self) -> None:
        """Wait until nothing is owed any more; what comes meanwhile is dropped."""
        self._known.clear()
        while self._owed > 0:
            await self.answers(TICK_SECONDS)

    async def close(self) -> None:
        """Release every device, if any was taken."""
        if self._opened is not None:
            await self._opened.close()
