"""Times a run's exported kernel as an application launches it, beside the report's figures.

``python -m tests.gpu.loader_time RUN …`` launches each confirmed shape from CuPy, and from PyTorch
where that is installed: a graph of launches, over as many buffers as the run used for cold caches.
Of a run's first shape it also tells how long a call keeps the host.
Fails where a shape that moves over 4 MB differs from the report, of the configuration that the
exported dispatch picks, by more than 2 %.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import cupy

import kernelwright
from cluster.commands.results import result_of
from tuner.experiment.arguments import resolve_arguments
from tuner.run_directory import RunView
from workers.backends.cuda.device import rotation_for
from workers.backends.cuda.driver import described, import_cuda
from workers.elements import numpy_dtype

WITHIN = 0.02
LEAST_BYTES = 4 << 20
REPLAYS = 100
LAUNCHES = 100
"""A graph has so many, so that its own start does not count."""


def arguments_of(experiment, symbols, seed):
    """One set of a shape's arguments by name."""
    random = cupy.random.default_rng(seed)
    found = {}
    for one in resolve_arguments(experiment, symbols):
        if one.kind == "scalar":
            found[one.name] = one.value
        elif one.kind in ("in", "out", "inout"):
            numbers = random.standard_normal(one.shape, cupy.float32)
            found[one.name] = numbers.astype(numpy_dtype(one.dtype))
    return found


def cupy_graph_ns(kernel, sets: list[dict]) -> float:
    """Per launch: the median over replays of a graph with a launch for each entry of ``sets``."""
    kernel.variant(**sets[0])
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for one in sets:
            kernel(**one)
        graph = stream.end_capture()
        times = []
        for _ in range(REPLAYS):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            times.append(1e6 * cupy.cuda.get_elapsed_time(start, stop) / len(sets))
    return statistics.median(times[REPLAYS // 4 :])


def host_us(call: Callable[[], None]) -> float:
    """Microseconds that a call keeps the host.

    The median over blocks of calls that are fewer than a stream holds, so that none of them waits.
    """
    call()
    times = []
    for _ in range(REPLAYS):
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        times.append(1e6 * (time.perf_counter() - began) / LAUNCHES)
    cupy.cuda.Device().synchronize()
    return statistics.median(times)


def torch_ns(kernel, sets: list[dict]) -> dict[str, float]:
    """Per launch through an operator: its CUDA graph, eager and compiled; empty without PyTorch."""
    try:
        import torch
    except ImportError:
        return {}
    operator = kernel.torch_op("kernelwright_time::" + kernel.name.replace("-", "_"))
    given = [
        {n: torch.as_tensor(v) if isinstance(v, cupy.ndarray) else v for n, v in one.items()}
        for one in sets
    ]

    def each() -> None:
        for one in given:
            operator(**one)

    def timed(run: Callable[[], None]) -> float:
        run()
        times = []
        for _ in range(REPLAYS):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            stop.record()
            stop.synchronize()
            times.append(1e6 * start.elapsed_time(stop) / len(given))
        return statistics.median(times[REPLAYS // 4 :])

    found = {"torch eager": timed(each), "torch.compile": timed(torch.compile(each))}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        each()
    return found | {"torch graph": timed(graph.replay)}


def main(runs: list[str]) -> int:
    """Print a line for each shape and way to launch it; 1 if one that counts differs."""
    runtime = import_cuda().runtime
    device = described(runtime.getDeviceProperties(0), runtime.driverGetVersion())
    wrong = 0
    for run in runs:
        result = kernelwright.load(run)
        kernel, experiment = result.kernel, RunView.open(result.path).experiment
        portfolio = result_of(result.path)[1].portfolio
        for index, one in enumerate(result.speedups):
            reported = portfolio.cells[index].time_ns if portfolio else one.time_ns
            if reported is None:
                continue
            first = arguments_of(experiment, one.shape, 0)
            size = sum(v.nbytes for v in first.values() if isinstance(v, cupy.ndarray))
            count = rotation_for(device, size, "cold", 1, 1).sets
            more = (arguments_of(experiment, one.shape, n) for n in range(1, count))
            sets = [first, *more] * -(-LAUNCHES // count)
            times = {"cupy graph": cupy_graph_ns(kernel, sets)}
            if index == 0:
                kept = host_us(partial(kernel, **first))
                print(f"{kernel.name}: a call keeps the host for {kept:.1f} µs")
                times |= torch_ns(kernel, sets)
            for way, found in times.items():
                off = found / reported - 1
                counts = "graph" in way and size >= LEAST_BYTES and abs(off) > WITHIN
                wrong += counts
                said = " WRONG" if counts else ""
                print(
                    f"{kernel.name} {dict(one.shape)} {kernel.variant(**first)} {way}: "
                    f"{found:.0f} ns, report {reported:.0f} ns, {off:+.1%}{said}"
                )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
