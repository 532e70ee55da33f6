"""Everything on a CUDA device runs as a graph: captured on one stream, launched on another.

The eighth kernel launched directly on a created stream makes every kernel node of every graph
0.2–0.35 µs slower until the process ends, a sixth of a small kernel's time; so do as many calls of
``cuCtxResetPersistingL2Cache`` (one H100 80GB, driver 580, CUDA 13.0, 2026-11-28). Graph launches
and work on the legacy stream do not. So no kernel is launched directly, and operations for which
the driver uses kernels, such as filling memory, go to the legacy stream.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from workers.backends.cuda.driver import Cuda
from workers.devices.port import DeviceFailure

_LEGACY = 0
_NON_BLOCKING = 1


class Streams:
    """``run`` executes everything in order; ``capture`` only records."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.run = _LEGACY
        self.capture: int = cuda.runtime.streamCreateWithFlags(_NON_BLOCKING)

    def graph(self, launch: Callable[[], None]) -> int:
        """The executable graph of what ``launch`` launches on ``capture``."""
        runtime = self._cuda.runtime
        runtime.streamBeginCapture(self.capture)
        try:
            launch()
        except (runtime.CUDARuntimeError, self._cuda.driver.CUDADriverError, DeviceFailure):
            self._abandon()
            raise
        graph: int = runtime.streamEndCapture(self.capture)
        try:
            executable: int = runtime.graphInstantiate(graph)
        finally:
            runtime.graphDestroy(graph)
        runtime.graphUpload(executable, self.run)
        return executable

    def close(self) -> None:
        """Destroy the capture stream."""
        self._cuda.runtime.streamDestroy(self.capture)

    def _abandon(self) -> None:
        """End the capture after a launch that the driver refused."""
        runtime = self._cuda.runtime
        try:
            runtime.graphDestroy(runtime.streamEndCapture(self.capture))
        except runtime.CUDARuntimeError:
            return


class KeptGraphs:
    """The ``most`` recently used executable graphs, by key."""

    def __init__(self, cuda: Cuda, streams: Streams, most: int) -> None:
        self._cuda, self._streams, self._most = cuda, streams, most
        self._graphs: OrderedDict[Hashable, int] = OrderedDict()

    def get(self, key: Hashable, launch: Callable[[], None]) -> int:
        """The graph of ``key``, captured from ``launch`` if it is missing."""
        if key not in self._graphs:
            if len(self._graphs) >= self._most:
                self._cuda.runtime.graphExecDestroy(self._graphs.popitem(last=False)[1])
            self._graphs[key] = self._streams.graph(launch)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def close(self) -> None:
        """Destroy them all."""
        while self._graphs:
            self._cuda.runtime.graphExecDestroy(self._graphs.popitem()[1])
