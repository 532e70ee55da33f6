"""One persistent compile process, replaced when a compile hangs or crashes."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.plan import Binary, Build
from tuner.trial import Code, Rejected, Stage
from workers.backends.registry import module_of, preloaded_modules
from workers.compilers.protocol import BUILD, OPENING, CompilerUnavailable, decode_result
from workers.confinement import device_sandbox
from workers.forking import ChildFailed
from workers.process import Child, physical_memory
from workers.scratch import PrivateFolder

_MAX_BINARY = 1 << 28

MEMORY_BYTES = 4 << 30
"""Memory limit of a compile: macros that expand into each other fill any memory in seconds."""

_LEAST_SECONDS = 15.0
_TIMES = 30
"""A compile may take so many times the slowest successful one, and at least 15 seconds."""

_ENDINGS = {
    "hung": (Code.COMPILE_TIMEOUT, "gave"),
    "memory": (Code.OUT_OF_MEMORY, "was stopped: it"),
}


class CompileWorker:
    """Compiles for one device model in a child process of its own.

    Not thread-safe. The process starts with the first request and is replaced after a time-out or a
    crash. A compile that crashes is retried once: the process may have been killed externally.
    """

    def __init__(self, device: Device, cache: Path | None = None) -> None:
        """``cache`` is a folder where binaries are kept from run to run, if any."""
        self._slowest = 0.0
        self._folder = PrivateFolder("compile")
        folder = self._folder.path
        kept = () if cache is None else (cache,)
        self._child = Child(
            "workers.compilers.child",
            [module_of(device.backend), OPENING.dump_json((device, cache)).decode()],
            preload=preloaded_modules(device.backend),
            memory_limit=min(MEMORY_BYTES, physical_memory() // 2),
            sandbox=device_sandbox(device.backend, folder, writable=kept),
        )

    @property
    def pid(self) -> int | None:
        """The compile process's id while it runs."""
        return self._child.pid

    def ready(self) -> None:
        """Start the process and open its compiler, which takes as long as a few compiles.

        Raises as :meth:`Child.begin`.
        """
        self._child.begin("compile process")

    def compile(
        self, builds: Sequence[Build], timeout: float = 120.0
    ) -> tuple[Binary, ...] | Rejected:
        """Compile in order, stopping at the first failure; ``timeout`` is per build, in seconds.

        Raises:
            ChildFailed: the process was killed while it started, or lost with its fork server.
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
                BUILD.dump_json(build),
                timeout=self._patience(timeout),
                limit=_MAX_BINARY,
                attempts=2,
            )
            result = decode_result(text, blobs, build)
        except ChildFailed as failure:
            if failure.how == "lost":
                raise
            code, verb = _ENDINGS.get(failure.how, (Code.COMPILER_CRASH, "failed:"))
            return Rejected(
                stage=Stage.COMPILE, code=code, detail=f"the compiler {verb} {failure.detail}"
            )
        except ValueError as error:
            self._child.kill()
            return Rejected(
                stage=Stage.COMPILE, code=Code.COMPILER_CRASH, detail=f"the compiler sent {error}"
            )
        if isinstance(result, CompilerUnavailable):
            raise EnvironmentProblem(result.detail)
        if isinstance(result, Binary):
            self._slowest = max(self._slowest, result.compile_seconds)
        return result

    def _patience(self, timeout: float) -> float:
        """The time-out of a compile: shorter once compiles of this kernel have been timed."""
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
