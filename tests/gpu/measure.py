"""Times kernels of the bundled experiments against the figures of :mod:`tests.gpu.anchors`.

``python -m tests.gpu.measure baselines`` times the baselines, ``… templates`` every configuration
of the templates at every shape (unchecked, for orientation). One JSON line per shape.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from tests.gpu.anchors import ANCHORS, Figures
from tuner.candidate import Candidate
from tuner.device import Device
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.plan import Binary, Build, CellPlan
from tuner.space.feasible import feasible_set
from tuner.space.lower import lower
from tuner.trial import Configuration, Rejected
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.device import CudaDevice, open_device
from workers.devices.port import DeviceFailure, StagedBuffer
from workers.devices.staging import staged

EXPERIMENTS = Path(__file__).parents[2] / "deploy" / "experiments"
Cache = Literal["hot", "cold"]
BURSTS = 5


def build(job: tuple[Device, Build]) -> Binary | Rejected:
    """Compile in a process of the pool."""
    device, wanted = job
    return open_compiler(device).compile(wanted)


class Course:
    """One experiment's kernels on one shape."""

    def __init__(
        self, device: CudaDevice, experiment: Experiment, binding: ShapeBinding, repeats: int
    ) -> None:
        self._device, self._repeats = device, repeats
        self._arguments = resolve_arguments(experiment, binding.symbols)
        self._size = sum(a.size for a in self._arguments if a.is_buffer)
        self._rng = np.random.default_rng(0)

    def times(self, candidates: list[Candidate], cache: Cache) -> Iterator[float]:
        """Median microseconds per launch of each candidate, infinite where it fails."""
        rotation = self._device.rotation(self._size, cache, 20, self._repeats)
        order = tuple(self._rng.permutation(rotation.sets).tolist())
        with tempfile.TemporaryDirectory() as folder:
            contents = {a.name: self._fill(a, Path(folder)) for a in self._arguments if a.is_buffer}
            arguments = staged(self._arguments, contents, self._device.device.base_align)
            buffer_sets = self._device.stage(arguments, rotation.sets)
            for candidate in candidates:
                (cell,) = candidate.plan.cells
                assert isinstance(cell, CellPlan)
                module = self._device.load(candidate.binaries)
                try:
                    launchable = self._device.bind(module, cell, buffer_sets)
                    samples = []
                    for _ in range(1 + BURSTS):
                        buffer_sets.restore(range(rotation.sets), 0xFF)
                        samples += launchable.burst(order)
                    launchable.release()
                    yield statistics.median(samples[1:]) / 1000
                except DeviceFailure as failure:
                    if failure.sticky:
                        raise
                    yield float("inf")
                module.release()
            buffer_sets.release()

    def _fill(self, argument: StagedBuffer, folder: Path) -> str:
        path = folder / argument.name
        count = int(np.prod(argument.shape))
        block = self._rng.standard_normal(min(count, 1 << 20)).astype(argument.dtype)
        np.resize(block, count).tofile(path)
        return str(path)


def candidates_of(
    experiment: Experiment, binding: ShapeBinding, device: Device, *, templates: bool
) -> list[Candidate]:
    """The baseline, or every feasible configuration of the template, compiled for one shape."""
    template, configurations = None, [Configuration(())]
    if templates:
        template = experiment.template
        assert template is not None
        space = feasible_set(experiment, template, device)
        configurations = [space.configuration(index) for index in range(len(space))]
    plans = [lower(experiment, template, c, (binding,), device) for c in configurations]
    jobs = [(device, b) for plan in plans for b in plan.builds]
    with ProcessPoolExecutor() as pool:
        binaries = dict(
            zip((b.digest for _, b in jobs), pool.map(build, jobs, chunksize=4), strict=True)
        )
    found = []
    for trial, (configuration, plan) in enumerate(zip(configurations, plans, strict=True)):
        own = [binaries[b.digest] for b in plan.builds]
        good = tuple(b for b in own if isinstance(b, Binary))
        if good and len(good) == len(own) and isinstance(plan.cells[0], CellPlan):
            found.append(
                Candidate(trial=trial, configuration=configuration, plan=plan, binaries=good)
            )
    return found


def main() -> None:
    """Measure what the command line names."""
    templates = sys.argv[1] == "templates"
    names = sys.argv[2:] or list(ANCHORS)
    jobs = []
    for name in names:
        experiment = load_experiment(EXPERIMENTS / name / "cuda.yaml")
        symbols = tuple(experiment.shapes.tune[0].symbols)
        for shape, figures in ANCHORS[name].items():
            binding = ShapeBinding(dict(zip(symbols, shape, strict=True)))
            found = candidates_of(experiment, binding, device_for("sm_90"), templates=templates)
            jobs.append((name, shape, figures, experiment, binding, found))
    device = open_device(0)
    for name, shape, figures, experiment, binding, found in jobs:
        course = Course(device, experiment, binding, repeats=20 if templates else 100)
        caches: tuple[Cache, ...] = ("cold",) if templates else ("hot", "cold")
        line: dict[str, object] = {"experiment": name, "shape": shape}
        for cache in caches:
            times = list(course.times(found, cache))
            best = int(np.argmin(times))
            line |= against(cache, times[best], figures)
            if templates:
                line["configuration"] = str(found[best].configuration)
        print(json.dumps(line), flush=True)


def against(cache: Cache, microseconds: float, figures: Figures) -> dict[str, object]:
    """A time beside the shipped kernel's and the best known one's."""
    shipped, best = (figures[0], figures[2]) if cache == "hot" else (figures[1], figures[3])
    return {
        f"{cache}_us": round(microseconds, 3),
        f"{cache}_to_shipped": round(microseconds / shipped, 3),
        f"{cache}_to_best": round(microseconds / best, 3),
    }


if __name__ == "__main__":
    main()
