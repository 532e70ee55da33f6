"""What runs on a CUDA device runs as a graph: captured on one stream, launched on another.

The eighth kernel that is launched as such on a stream of one's own makes every kernel node of every
graph 0.2–0.35 µs slower for as long as the process lives, a sixth of a small kernel's time, and so
do as many calls of ``cuCtxResetPersistingL2Cache`` (one H100 80GB, driver 580, CUDA 13.0,
2026-11-28). Launches of graphs do not, nor does what runs on the legacy stream. So nothing of the
harness launches a kernel directly, and what the driver does by kernels of its own, as filling
memory, is asked for on the legacy stream.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from workers.backends.cuda.driver import Cuda

_LEGACY = 0
_NON_BLOCKING = 1


class Streams:
    """``run``, on which everything runs in order, and ``capture``, on which nothing ever runs."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.run = _LEGACY
        self.capture: int = cuda.runtime.streamCreateWithFlags(_NON_BLOCKING)

    def graph(self, launch: Callable[[], None]) -> int:
        """The executable graph of what ``launch`` launches on ``capture``; both stay usable."""
        runtime = self._cuda.runtime
        runtime.streamBeginCapture(self.capture)
        try:
            launch()
        except (runtime.CUDARuntimeError, self._cuda.driver.CUDADriverError):
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
        """Destroy the stream of captures."""
        self._cuda.runtime.streamDestroy(self.capture)

    def _abandon(self) -> None:
        """Leave the stream usable after a launch that the driver refused."""
        runtime = self._cuda.runtime
        try:
            runtime.graphDestroy(runtime.streamEndCapture(self.capture))
        except runtime.CUDARuntimeError:
            return


class KeptGraphs:
    """The executable graphs used last, ``most`` of them, by what they launch."""

    def __init__(self, cuda: Cuda, streams: Streams, most: int) -> None:
        self._cuda, self._streams, self._most = cuda, streams, most
        self._graphs: OrderedDict[Hashable, int] = OrderedDict()

    def get(self, key: Hashable, launch: Callable[[], None]) -> int:
        """The graph of ``key``, captured from ``launch`` if it is not kept."""
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
