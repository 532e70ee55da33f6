"""The public Python API: tune a kernel, read a run's result, and the search for ``hyperopt.fmin``.

Functions import what they need. The packages below import ``__version__`` alone from here.

    import kernelwright as kw
    result = kw.tune("scale_rows.yaml", seconds=120, on_event=print)
    print(result.speedup, result.best)
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cluster.cli.console import Update
    from tuner.drafts.written_spec import Array
    from tuner.results.result import Result as ResultOfRun
    from tuner.results.statistics import Comparison
    from workers.loader.kernel import TunedKernel

__all__ = [
    "Result",
    "ShapeSpeedup",
    "Speedup",
    "__version__",
    "load",
    "load_kernel",
    "suggest",
    "tune",
    "write_spec",
]

__version__ = "0.1.0"


@dataclass(frozen=True)
class Speedup:
    """The baseline's time ÷ that of the tuned kernel (above 1 is faster), with its interval.

    ``low`` and ``high`` are ``None`` before confirmation, and where times scatter too much.
    """

    value: float
    low: float | None
    high: float | None
    verdict: Literal["faster", "same", "slower", "unclear", "unconfirmed"]

    def __str__(self) -> str:
        from tuner.results.statistics import interval_text

        return f"{interval_text(self.value, self.low, self.high)} {self.verdict}"


@dataclass(frozen=True)
class ShapeSpeedup:
    """The tuned kernel on one shape; ``held_out`` shapes are confirmed, but never searched.

    Times are in nanoseconds per run of the kernel; ``None`` where nothing was measured.
    ``configuration`` is :attr:`Result.best`, or the shape's own best one if none serves all shapes.
    ``metrics`` are the spec's, of baseline and tuned kernel. Energies are in millijoules.
    """

    shape: Mapping[str, bool | int | str]
    held_out: bool
    configuration: Mapping[str, bool | int | str] | None
    baseline_ns: float | None
    time_ns: float | None
    speedup: Speedup | None
    metrics: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    baseline_mj: float | None = None
    millijoules: float | None = None


@dataclass(frozen=True)
class Result:
    """The result of a run: what won, and how much faster it is. Printed or in a notebook: a table.

    Attributes:
        path: the run directory; the methods read it again.
        outcome: ``improved``, ``no_gain``, ``nothing_valid``, or ``unfinished``.
        speedup: of ``best``: the weighted geometric mean over the tune shapes. If no configuration
            serves all shapes, the best one on a single shape. ``None`` if nothing was measured.
        best: parameters by name; ``None`` if no configuration was valid.
        speedups: one entry for each shape, tune then held-out.
    """

    path: Path
    outcome: Literal["improved", "no_gain", "nothing_valid", "unfinished"]
    speedup: Speedup | None
    best: Mapping[str, bool | int | str] | None
    speedups: tuple[ShapeSpeedup, ...]

    def report(self) -> str:
        """The report as text in lines of 80 columns, as ``kernelwright report`` prints it."""
        from cluster.commands.results import result_of
        from tuner.report.text import render

        return render(result_of(self.path)[1])

    def to_dataframe(self) -> Any:
        """Trials as a ``pandas.DataFrame``: outcome, loss, parameters, times and metrics by shape.

        Raises:
            tuner.errors.EnvironmentProblem: pandas is not installed.
        """
        from cluster.commands.results import data_frame

        return data_frame(self.path)

    def export(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the tuned sources and their C header to a folder; return the files' paths.

        Raises:
            tuner.errors.NothingValid: nothing was confirmed.
            tuner.errors.EnvironmentProblem: the folder cannot be written.
        """
        from cluster.commands.results import write_export

        return write_export(self.path, Path(folder))

    @property
    def kernel(self) -> "TunedKernel":
        """What :meth:`export` writes, as a Python function; see ``load_kernel``."""
        from cluster.commands.results import exported
        from workers.loader.kernel import TunedKernel

        return TunedKernel(exported(self.path))

    def plot(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the report's figures to a folder, each as PNG and SVG; return the files' paths.

        Raises:
            tuner.errors.EnvironmentProblem: matplotlib is not installed, or the folder cannot be
                written.
        """
        from cluster.commands.report import write_plots

        return write_plots(self.path, Path(folder))

    def __repr__(self) -> str:
        return f"<Result {self._caption()}; {self.path}>"

    def __str__(self) -> str:
        from tuner.report.text import aligned
        from tuner.report.wrapping import WIDTH

        return f"{self._caption()}\n{aligned(self._rows(), WIDTH)}\nrun: {self.path}"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        from tuner.report.html import plain_table

        head, *rows = self._rows()
        return plain_table(self._caption(), head, rows)

    def _caption(self) -> str:
        best = f" with {_words(self.best)}" if self.best else ""
        return f"{self.outcome}: {self.speedup or 'no configuration'}{best}"

    def _rows(self) -> list[tuple[str, ...]]:
        """The head of a table, and a row for each shape."""
        from tuner.report.text import cost_text, figure_text

        names = self.speedups[0].metrics if self.speedups else ()
        head = ("shape", "baseline", "time", "speedup", *names)
        return [head] + [
            (
                _words(one.shape) + " (held out)" * one.held_out,
                cost_text(one.baseline_ns, one.baseline_mj),
                cost_text(one.time_ns, one.millijoules),
                str(one.speedup or "-"),
                *(" → ".join(map(figure_text, pair)) for pair in one.metrics.values()),
            )
            for one in self.speedups
        ]


def tune(
    spec: str | PathLike[str],
    *,
    fleet: Literal["local", "ray"] = "local",
    seconds: float | None = None,
    trials: int | None = None,
    run_dir: str | PathLike[str] | None = None,
    on_event: "Callable[[Update], None] | None" = None,
) -> Result:
    """Tune the kernel of a spec: search, check, time, confirm, report, export. Blocks until done.

    Works inside a running event loop. Ctrl-C keeps what was measured; ``resume`` continues it.

    Args:
        spec: the path of a spec, or the name of a bundled experiment.
        fleet: ``local`` for this process and its children; ``ray`` for the cluster at
            ``RAY_ADDRESS``, or a Ray started on this machine.
        seconds: the time of the whole run, in place of the spec's.
        trials: configurations to try at most, in place of the spec's.
        run_dir: the run directory to create, by default a new one in ``runs/``.
        on_event: called from another thread when there is progress to show; ``str(event)`` is the
            line that the command shows. An exception that it raises ends the run at once.

    Returns:
        The result; its ``outcome`` is ``unfinished`` if the run was stopped from outside.

    Raises:
        tuner.errors.SpecError: the spec or an argument is invalid.
        tuner.errors.EnvironmentProblem: no device, package or writable folder, or a call goes on.
        tuner.errors.NothingValid: no configuration was valid, or the baseline was rejected.
    """
    from cluster.commands.report import check_outcome, finish
    from cluster.commands.results import is_over
    from cluster.commands.runs import new_run
    from cluster.runs.placement import Placement
    from cluster.runs.run_thread import follow
    from cluster.settings import Settings, environment_kept
    from tuner.errors import SpecError
    from tuner.experiment.longest import LARGEST_COUNT, LONGEST_SECONDS

    if fleet not in ("local", "ray"):
        raise SpecError(f"fleet={fleet!r}: write 'local' or 'ray'")
    if trials is not None and not (isinstance(trials, Integral) and 1 <= trials <= LARGEST_COUNT):
        raise SpecError(f"trials={trials!r}: a number from 1 to {LARGEST_COUNT} is needed")
    if seconds is not None and not (isinstance(seconds, Real) and 0 < seconds <= LONGEST_SECONDS):
        raise SpecError(f"seconds={seconds!r}: a time above 0 is needed, at most {LONGEST_SECONDS}")
    with (
        environment_kept(),
        new_run(
            str(spec),
            Settings.read(),
            Placement(fleet=fleet),
            run_dir=None if run_dir is None else Path(run_dir),
            trials=None if trials is None else int(trials),
            seconds=None if seconds is None else float(seconds),
        ) as new,
    ):
        follow(new.running, new.folder, on_event or (lambda _: None))
    if is_over(new.folder):
        check_outcome(new.folder, finish(new.folder))
    return load(new.folder)


def write_spec(
    folder: str | PathLike[str],
    *,
    source: str,
    entry: str,
    arguments: "Mapping[str, Array]",
    outputs: Collection[str],
    grid: str | Sequence[str],
    block: str | Sequence[str],
    parameters: Mapping[str, Sequence[bool | int | str]],
    updated: Collection[str] = (),
    constraints: Sequence[str] = (),
    baseline: Mapping[str, bool | int | str] | None = None,
    reference: Callable[..., object] | None = None,
    language: Literal["cuda", "opencl"] = "cuda",
) -> Path:
    """Write a spec folder for a kernel with parameters, from arrays; return the spec, for ``tune``.

    Args:
        folder: a new one, or one of an earlier call, whose files are replaced. Runs read it.
        source: the kernel's text, which uses the parameters as macros and does not define them.
        entry: the kernel's name, and the spec's.
        arguments: by name, in the kernel's order: NumPy arrays, and scalars such as
            ``np.int32(n)``. The integer scalars name the shape.
        outputs: names of arrays of which the kernel writes every element; what they hold is unused.
        grid: blocks (work-groups) per axis: expressions over integer scalars and parameters.
        block: threads (work-items) per block and axis.
        parameters: their values by name.
        updated: names of arrays that the kernel reads and writes, or writes in part.
        constraints: conditions on the parameters.
        baseline: values of parameters in the baseline; the first one of each that is not named.
        reference: a NumPy function of the inputs and scalars by name that returns the outputs. Its
            source is copied: it sees ``np`` and what it imports itself.
        language: of the source.

    Raises:
        tuner.errors.SpecError: an argument is invalid, or the spec made of them is.
        tuner.errors.EnvironmentProblem: the folder has other files, or cannot be written.
    """
    from agents.settings import SECTIONS
    from tuner.drafts import written_spec
    from tuner.experiment.load import load_experiment

    path = written_spec.write_spec(
        Path(folder),
        language=language,
        source=source,
        entry=entry,
        arguments=arguments,
        outputs=outputs,
        updated=updated,
        grid=grid,
        block=block,
        parameters=parameters,
        constraints=constraints,
        baseline=baseline or {},
        reference=reference,
    )
    load_experiment(path, SECTIONS)
    return path


def load(run: str | PathLike[str]) -> Result:
    """The result of a run directory, also of a run that goes on.

    Raises:
        tuner.errors.SpecError: there is no run.
        tuner.errors.NothingValid: a run with agents has searched nothing yet.
        tuner.errors.EnvironmentProblem: a file of the run is lost or damaged.
    """
    from cluster.commands.results import result_of

    history, found = result_of(path := Path(run).absolute())
    best, _ = found.tuned
    shapes = history.experiment.shapes
    return Result(
        path=path,
        outcome=found.outcome,
        speedup=_speedup(found.speedup, found.comparison),
        best=best.as_dict() if best else None,
        speedups=tuple(
            _on_shape(found, index, binding.symbols)
            for index, binding in enumerate((*shapes.tune, *shapes.held_out))
        ),
    )


def load_kernel(folder: str | PathLike[str]) -> "TunedKernel":
    """The kernel in the folder of an export, as a Python function; the run is not needed.

    Raises ``tuner.errors.EnvironmentProblem`` if the export is incomplete or damaged.
    """
    from workers.loader import kernel

    return kernel.TunedKernel.read(Path(folder))


def _on_shape(
    result: "ResultOfRun", index: int, symbols: Mapping[str, bool | int | str]
) -> ShapeSpeedup:
    shape = result.shapes[index]
    cell, configuration = result.tuned[1].get(index, (None, None))
    return ShapeSpeedup(
        shape=symbols,
        held_out=shape.held_out,
        configuration=configuration.as_dict() if configuration else None,
        baseline_ns=shape.baseline_ns,
        time_ns=cell.time_ns if cell else None,
        speedup=_speedup(cell.speedup, cell.comparison) if cell else None,
        metrics={one.name: one.on(index) for one in result.metrics},
        baseline_mj=shape.baseline_mj,
        millijoules=cell.millijoules if cell else None,
    )


def _speedup(value: float | None, found: "Comparison | None") -> Speedup | None:
    if found is not None:
        return Speedup(found.speedup, found.low, found.high, found.verdict)
    return None if value is None else Speedup(value, None, None, "unconfirmed")


def _words(values: Mapping[str, bool | int | str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def suggest(
    new_ids: Sequence[int], domain: Any, trials: Any, seed: int, constraints: Sequence[str] = ()
) -> list[Any]:
    """Hyperopt's contract for an algorithm: expected improvement under a Gaussian process.

    For discrete spaces: ``hp.choice``, ``hp.pchoice``, ``hp.randint``, ``hp.uniformint`` and
    whole-numbered ``hp.quniform``. No point is proposed twice; ``fmin`` ends once none is left.

        fmin(time_of, space, algo=partial(suggest, constraints=["BLOCK * VEC <= 1024"]))

    Args:
        new_ids: ids of the trials to propose, several at a time if evaluations run in parallel.
        domain: Hyperopt's view of the search space.
        trials: the trials so far. A result may hold ``losses``: its loss, then one for each of
            several objectives, whose specialists are searched for too.
        seed: of everything random.
        constraints: expressions over the parameters that every proposed point meets.

    Returns:
        A trial document for each id, fewer at the end.

    Raises:
        tuner.errors.SpecError: the space is not discrete, a constraint is malformed, or no point
            meets all constraints.
    """
    from tuner.search.gaussian_process.suggest import suggest as algorithm

    return algorithm(new_ids, domain, trials, seed, constraints)


if __name__ == "__main__":
    import cluster.__main__  # noqa: F401
