"""The life of a candidate on one device: prepared, checked, timed, confirmed.

The one bench, used unchanged by the local fleet's thread and by the Ray actor. Owns the judgement;
the device is touched only by its child process (:mod:`workers.bench.supervisor`).
"""

from tuner.device import Backend, Device
from tuner.fleet import Benched, BenchSetup, Candidate, Confirmed, ConfirmJob, Prepared


class Bench:
    """One device's bench: synchronous, for one thread at a time; raises only machinery failures.

    The device is locked host-wide during each of :meth:`prepare`, :meth:`run` and :meth:`confirm`,
    so that several benches, also of other runs, may share it without disturbing each other's times.
    """

    def __init__(self, backend: Backend, index: int) -> None:
        self._backend: Backend = backend
        self._index = index

    @property
    def name(self) -> str:
        """Host, backend and index: what ``Benched.bench`` holds."""
        raise NotImplementedError

    def device(self) -> Device:
        """The device's model and limits.

        Raises:
            EnvironmentProblem: no such device, no driver or no package for it.
        """
        raise NotImplementedError

    def prepare(self, setup: BenchSetup) -> Prepared:
        """Make the oracles, check the baseline and the probes, time the baseline.

        What is made here serves every later call; calling again starts over.
        """
        raise NotImplementedError

    def run(self, candidate: Candidate) -> Benched:
        """Verify and time one candidate on every tune shape it is feasible for.

        Raises:
            EnvironmentProblem: the device failed its canary twice and is quarantined.
        """
        raise NotImplementedError

    def confirm(self, job: ConfirmJob) -> Confirmed:
        """Check finalists harder, then time them and the baseline interleaved, in a fresh child."""
        raise NotImplementedError

    def close(self) -> None:
        """End the child and free the device.

        Safe to call twice, and from another thread to abort a call.
        """
        raise NotImplementedError
