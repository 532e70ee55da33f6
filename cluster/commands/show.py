"""``show``: everything that a run knows of one trial."""

import json
import shlex
from pathlib import Path

import typer

from agents.variants import read_variants
from cluster.commands.results import history_of, result_view
from cluster.settings import Settings
from tuner.device import Device
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.model import Template
from tuner.plan import Binary, Plan
from tuner.report.text import labelled
from tuner.report.trial import record_json, record_text, trial_record
from tuner.report.wrapping import MOST_PROSE, terminal_width
from tuner.run_directory import SPEC, RunView
from tuner.trial import Rejected
from workers.compilers.worker import CompileWorker
from workers.forking import ChildFailed


def show(run_dir: Path, trial: int, *, as_json: bool) -> None:
    """Print one trial of a run's result, or of a round's search if ``run_dir`` is that folder.

    The binaries are compiled again, or taken from the cache, for what the compiler says of them.

    Raises:
        SpecError: the search has no such trial.
    """
    view = result_view(run_dir)
    entries, history = view.entries(), history_of(view)
    if trial not in history.trials:
        last = max(history.trials, default=None)
        known = "none was proposed yet" if last is None else f"trials 0 to {last}"
        raise SpecError(f"{view.path} has no trial {trial}: {known}")
    record = trial_record(history, entries, trial)
    source = _source(RunView.open(run_dir), view, history.template(trial))
    binaries, problem = _compiled(record.plan, history.device)
    settings = shlex.join(
        word
        for name, value in record.configuration.items()
        for word in ("--set", f"{name}={value}")
    )
    again = f"kernelwright trial {shlex.quote(str(view.path / SPEC))} {settings}"
    if as_json:
        found = {
            "search": str(view.path),
            "source": str(source),
            "compile_problem": problem,
            **record_json(record, binaries),
            "reproduce": again,
        }
        typer.echo(json.dumps(found, indent=2))
        return
    width = min(terminal_width(), MOST_PROSE)
    typer.echo(labelled(width, "search", str(view.path)))
    typer.echo(labelled(width, "source", str(source)))
    if problem:
        typer.echo(labelled(width, "compiler", problem))
    typer.echo(record_text(record, width, binaries))
    typer.echo(f"\nreproduce\n  {again}")


def _source(run: RunView, search: RunView, template: Template | None) -> Path:
    """The file that holds the template's source: a variant, the user's own file, or the spec."""
    if template is not None:
        name = Path(template.source.name).name
        for variant in read_variants(run.path / "variants").values():
            if variant.template == template:
                return run.path / "variants" / variant.digest / name
    return search.path / SPEC


def _compiled(plan: Plan | None, device: Device | None) -> tuple[tuple[Binary, ...], str | None]:
    """The binaries of a plan, or why there are none."""
    if plan is None or device is None:
        return (), "the run has met no device yet"
    try:
        with CompileWorker(device, Settings.read().cache) as compiler:
            compiled = compiler.compile(plan.builds)
    except (ChildFailed, EnvironmentProblem) as problem:
        return (), str(problem)
    if isinstance(compiled, Rejected):
        return (), f"{compiled.code}: {compiled.detail}"
    return compiled, None
