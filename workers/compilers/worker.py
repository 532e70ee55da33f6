"""One persistent compile process, and what becomes of it when a compile hangs or crashes."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.plan import Binary, Build
from tuner.trial import Code, Rejected, Stage
from workers.backends.registry import module_of
from workers.child_environment import private_environment
from workers.compilers.protocol import Problem, decode_result, encode_build, encode_opening
from workers.process import Child, ChildFailed, physical_memory
from workers.scratch import PrivateFolder

_MAX_BINARY = 1 << 28

MEMORY_BYTES = 4 << 30
"""What a compile may hold: macros that expand into each other fill any memory within seconds."""

_LEAST_SECONDS = 15.0
_TIMES = 30
"""A compile may take so many times the slowest that succeeded, and a quarter of a minute anyhow."""

_ENDINGS = {
    "hung": (Code.COMPILE_TIMEOUT, "gave"),
    "memory": (Code.OUT_OF_MEMORY, "was stopped: it"),
}


class CompileWorker:
    """Compiles for one device model in a child process of its own.

    Not thread-safe: one worker, one thread. The process starts when it is first asked for anything,
    and is replaced after a time-out or a crash. What it crashed at is asked of it once more, since
    somebody else may have killed it.
    """

    def __init__(self, device: Device, cache: Path | None = None) -> None:
        """A worker for one model; ``cache`` is where binaries are kept from run to run, if any."""
        self._slowest = 0.0
        self._folder = PrivateFolder("compile")
        folder = self._folder.path
        environment = {**private_environment(device.backend, folder), "TMPDIR": str(folder)}
        self._child = Child(
            "workers.compilers.child",
            [module_of(device.backend), encode_opening(device, cache)],
            environment=environment,
            memory_limit=min(MEMORY_BYTES, physical_memory() // 2),
        )

    def ready(self) -> None:
        """Have the process up and its compiler open; starting takes as long as a few compiles.

        Raises:
            EnvironmentProblem: it does not start.
        """
        try:
            self._child.start()
        except ChildFailed as failure:
            raise EnvironmentProblem(f"the compile process does not start: {failure}") from None

    def compile(
        self, builds: Sequence[Build], timeout: float = 120.0
    ) -> tuple[Binary, ...] | Rejected:
        """Compile in order, stopping at the first failure; ``timeout`` is per build, in seconds.

        Raises:
            EnvironmentProblem: the toolchain is missing.
        """
        binaries = []
        for build in builds:
            result = self._one(build, timeout)
            if isinstance(result, Rejected):
                return result
            binaries.append(result)
        return tuple(binaries)

    def close(self) -> None:
        """End the process. Safe to call twice, and from another thread to abort a compile."""
        self._child.close()
        self._folder.remove()

    def _one(self, build: Build, timeout: float) -> Binary | Rejected:
        self.ready()
        try:
            text, blobs = self._child.request(
                encode_build(build),
                timeout=self._patience(timeout),
                limit=_MAX_BINARY,
                lives=2,
            )
            result = decode_result(text, blobs, build)
        except ChildFailed as failure:
            code, verb = _ENDINGS.get(failure.how, (Code.COMPILER_CRASH, "failed:"))
            return Rejected(
                stage=Stage.COMPILE, code=code, detail=f"the compiler {verb} {failure.detail}"
            )
        except ValueError as error:
            self._child.kill()
            return Rejected(
                stage=Stage.COMPILE, code=Code.COMPILER_CRASH, detail=f"the compiler sent {error}"
            )
        if isinstance(result, Problem):
            raise EnvironmentProblem(result.detail)
        if isinstance(result, Binary):
            self._slowest = max(self._slowest, result.compile_seconds)
        return result

    def _patience(self, timeout: float) -> float:
        """Less than ``timeout`` once it is known how long compiles of this kernel take."""
        return min(timeout, max(_LEAST_SECONDS, _TIMES * self._slowest or timeout))

    def __enter__(self) -> "CompileWorker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
