"""``inject``: an unmodified application with a run's kernels in place of its own."""

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from cluster.cli.console import say
from cluster.commands.applications import end, recording_folder, tell
from cluster.commands.results import history_of, result_view
from tuner.errors import NothingValid, SpecError
from tuner.export.bundle import Export
from tuner.export.substitution import SubstitutionRule, substitution_rules
from tuner.plan import Binary, Build
from tuner.printable import counted
from tuner.report.text import time_text
from tuner.trial import Rejected
from workers.compilers.worker import CompileWorker
from workers.interposer.application import Ended, InterposerSettings, run_application
from workers.interposer.injection import InjectedKernel, injected_kernels
from workers.interposer.names import nearest_names, readable_name
from workers.interposer.rules import TunedImage, rules_text
from workers.interposer.trace import Trace, read_traces

_STDERR = 2


def inject(
    run_dir: Path,
    application: list[str],
    *,
    verify: bool,
    repeat: int,
    kernel: str | None,
    as_json: bool,
) -> None:
    """Run an application with tuned kernels, and print what became of its launches.

    Raises:
        SpecError: launches of the run's kernel cannot be recognised in an application.
        NothingValid: there is no tuned kernel, a source does not compile, no launch of the kernel
            was seen, or results differ.
    """
    if verify and repeat:
        raise SpecError("--repeat times the application, --verify slows it: give one of them")
    view = result_view(run_dir)
    if view.experiment.kernel.language != "cuda":
        raise SpecError(f"{run_dir}: only CUDA kernels can be injected")
    export = Export.of(history_of(view))
    with recording_folder() as folder:
        names = _write_rules(export, folder, kernel)
        runs = _Runs(application, folder, verify=verify, as_json=as_json)
        for _ in range(repeat):
            runs.plain()
            runs.injected()
        if not repeat:
            runs.injected()
    assert runs.ended is not None
    tell(runs.ended, runs.traces)
    devices = {trace.device.device for trace in runs.traces if trace.device}
    if other := sorted(devices - {export.device.name}):
        say(f"the run tuned for {export.device.name}, but the application used {other[0]}")
    kernels = injected_kernels(runs.traces, verified=verify)
    if as_json:
        typer.echo(json.dumps(_document(kernels, runs), indent=2))
    else:
        for line in [*map(_line, kernels), *_timing(runs)]:
            typer.echo(line)
    end(runs.ended, _problem(kernels, names, runs.traces))


class _Runs:
    """Runs the application with and without the rules; keeps the last injected run's traces."""

    def __init__(
        self, application: Sequence[str], folder: Path, *, verify: bool, as_json: bool
    ) -> None:
        self._application = application
        self._folder = folder
        self._verify = verify
        self._stdout = _STDERR if as_json else None
        self.with_rules: list[float] = []
        self.without: list[float] = []
        self.ended: Ended | None = None
        self.traces: list[Trace] = []

    def plain(self) -> None:
        """Run the application as it is."""
        ended, seconds = self._run(None)
        if ended.exit_code:
            tell(ended, [])
            end(ended, "")
        self.without.append(seconds)

    def injected(self) -> None:
        """Run the application with the rules."""
        settings = InterposerSettings(
            mode="verify" if self._verify else "inject", rules=self._folder / "rules"
        )
        self.ended, seconds = self._run(settings)
        self.with_rules.append(seconds)

    def _run(self, settings: InterposerSettings | None) -> tuple[Ended, float]:
        number = len(self.with_rules) + len(self.without)
        folder = self._folder / f"run{number}"
        folder.mkdir(mode=0o700)
        began = time.monotonic()
        ended = run_application(self._application, settings, folder, stdout=self._stdout)
        seconds = time.monotonic() - began
        if settings is not None:
            self.traces = read_traces(folder)
        return ended, seconds


def _write_rules(export: Export, folder: Path, kernel: str | None) -> list[str]:
    """Compile the variants, and write them and the file of rules; the kernels' names."""
    rules, notes = substitution_rules(export)
    for note in notes:
        say(note)
    if not any(rule.variants for rule in rules):
        raise NothingValid("no tuned kernel of the run can be injected")
    if kernel is not None and len(rules) > 1:
        raise SpecError("--kernel: the spec has a type symbol, hence several kernels")
    written, names = [], []
    with CompileWorker(export.device) as compiler:
        for rule in rules:
            baseline = _compiled(compiler, rule.build)
            names.append(kernel or dict(baseline.symbols).get(rule.entry, rule.entry))
            images = _images(compiler, rule, folder)
            written.append((rule, names[-1], images))
    (folder / "rules").write_text(rules_text(written), encoding="utf-8")
    return names


def _images(compiler: CompileWorker, rule: SubstitutionRule, folder: Path) -> list[TunedImage]:
    """Write each variant's machine code to a file."""
    images = []
    for launch in rule.variants:
        binary = _compiled(compiler, launch.build)
        path = folder / f"{binary.build}.cubin"
        path.write_bytes(binary.code)
        images.append(TunedImage(path, dict(binary.symbols).get(launch.entry, launch.entry)))
    return images


def _compiled(compiler: CompileWorker, build: Build) -> Binary:
    made = compiler.compile((build,))
    if isinstance(made, Rejected):
        raise NothingValid(f"{build.file} cannot be compiled: {made.detail}")
    return made[0]


def _problem(
    kernels: Sequence[InjectedKernel], names: Sequence[str], traces: Sequence[Trace]
) -> str:
    """Why the command fails although the application did not; empty if it succeeds."""
    if not kernels:
        launched = {one.name for trace in traces for one in trace.kernels.values()}
        if not launched:
            return "the application launched no kernel"
        near = nearest_names(readable_name(names[0]).rpartition("::")[2], launched)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        return (
            f"the application launched no kernel named {', '.join(names)}{hint}; if it has another "
            "name there, give it with --kernel"
        )
    different = sum(kernel.different for kernel in kernels)
    if different:
        compared = different + sum(kernel.equal for kernel in kernels)
        return f"the results of {different} of {compared} compared launches differ"
    return ""


def _line(kernel: InjectedKernel) -> str:
    name = readable_name(kernel.name)
    compared = kernel.equal + kernel.different
    parts = []
    if compared:
        parts.append(
            f"{counted(compared, 'launch', 'launches')} compared, {kernel.different} different"
        )
        worst = f", at most by {kernel.worst:.3g}" if kernel.unequal else ""
        parts.append(f"{counted(kernel.unequal, 'element')} not equal bit for bit{worst}")
    if kernel.substituted:
        graphs = f" ({kernel.recorded} of them into graphs)" if kernel.recorded else ""
        parts.append(
            f"{counted(kernel.substituted, 'launch', 'launches')} of tuned kernels{graphs}"
        )
    if kernel.fell_back:
        parts.append(f"{kernel.fell_back} fell back to the original")
    parts += [f"{count} of the original: {reason}" for reason, count in kernel.original.items()]
    return f"{name}: " + "\n  ".join(parts)


def _timing(runs: _Runs) -> list[str]:
    if not runs.without:
        return []
    before, after = statistics.median(runs.without), statistics.median(runs.with_rules)
    count = len(runs.without)
    times = f"{time_text(1e9 * before)} without, {time_text(1e9 * after)} with tuned kernels"
    how = f"medians of {count} runs each, in alternation"
    return [f"end to end {times}: {before / after:.3f}× ({how})"]


def _document(kernels: Sequence[InjectedKernel], runs: _Runs) -> dict[str, object]:
    return {
        "kernels": [
            {
                "name": kernel.name,
                "substituted": kernel.substituted,
                "recorded": kernel.recorded,
                "fell_back": kernel.fell_back,
                "original": dict(kernel.original),
                "equal": kernel.equal,
                "different": kernel.different,
                "unequal_elements": kernel.unequal,
                "worst": kernel.worst,
            }
            for kernel in kernels
        ],
        "seconds": {"with": runs.with_rules, "without": runs.without},
    }
