"""One persistent compile process, and what becomes of it when a compile hangs or crashes."""

from collections.abc import Sequence
from types import TracebackType

from tuner.device import Device
from tuner.plan import Binary, Build
from tuner.trial import Rejected


class CompileWorker:
    """Compiles for one device model in a child process of its own.

    Not thread-safe: one worker, one thread. The process starts with the first compile and is
    replaced after a time-out or a crash.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def compile(
        self, builds: Sequence[Build], timeout: float = 120.0
    ) -> tuple[Binary, ...] | Rejected:
        """Compile in order, stopping at the first failure; ``timeout`` is per build, in seconds.

        Raises:
            EnvironmentProblem: the toolchain is missing.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End the process. Safe to call twice, and from another thread to abort a compile."""
        raise NotImplementedError

    def __enter__(self) -> "CompileWorker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
