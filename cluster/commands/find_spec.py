"""Finds a spec by path or by the name of a bundled experiment, and gives it a template."""

import difflib
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer

from agents.generation.mechanical import mechanical_template
from agents.settings import SECTIONS
from cluster.cli.console import say
from tuner.backends.registry import backends
from tuner.errors import KernelwrightError, NothingValid, SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment
from tuner.integrity.source_rules import source_violations
from workers.devices.discover import list_devices

BUNDLED = Path(__file__).parents[2] / "deploy" / "experiments"


def bundled_names() -> list[str]:
    """The names of the bundled experiments."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/opencl.yaml"))


def bundled_file(name: str) -> Path | None:
    """The file of a bundled experiment that ``NAME/STEM`` names, if there is one."""
    folder, _, stem = name.partition("/")
    path = BUNDLED / folder / f"{stem}.yaml"
    return path if folder in bundled_names() and stem.isidentifier() and path.is_file() else None


def find_spec(spec: str, has_gpu: Callable[[], bool]) -> Path:
    """The spec's file. A bundled name stands for its variant for a GPU, if there is one.

    A link stands for the file that it points to, whose sources lie beside it.

    ``NAME/STEM`` is one of a bundled experiment's other files.

    Args:
        spec: the user's argument.
        has_gpu: called for a bundled name only.

    Raises:
        SpecError: there is neither such a file nor such an experiment, or it is a kernel.
    """
    path = Path(spec)
    with suppress(OSError):
        if path.is_file():
            if any(path.suffix in backend.suffixes for backend in backends()):
                init = f"kernelwright init {shlex.quote(spec)}"
                raise SpecError(f"{spec} is a kernel, not a spec: {init}")
            return path.resolve() if path.is_symlink() else path
    names = bundled_names()
    if spec in names:
        for backend in backends():
            path = BUNDLED / spec / f"{backend.name}.yaml"
            if path.is_file() and (not backend.gpu_only or has_gpu()):
                return path
    if (found := bundled_file(spec)) is not None:
        return found
    with suppress(OSError):
        if path.is_dir():
            raise SpecError(f"{spec} is a folder: name the .yaml file in it")
    close = _files_like(path) or difflib.get_close_matches(spec, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"bundled experiments: {', '.join(names)}"
    raise SpecError(f"no such file: {spec}; {hint}")


def _files_like(path: Path) -> list[str]:
    """The file in the same folder with the most similar name."""
    with suppress(OSError, ValueError):
        files = {file.name: str(file) for file in path.parent.glob("*.y*ml")}
        return [
            files[name] for name in difflib.get_close_matches(path.name, files, n=1, cutoff=0.8)
        ]
    return []


def tunable(experiment: Experiment) -> Experiment:
    """The experiment with a template: the user's own, or one that rules derive from the kernel.

    Raises:
        SpecError: there is no template, and the kernel has nothing to vary.
        NothingValid: the source rules refuse the template.
    """
    template = experiment.template
    if template is None:
        made = mechanical_template(experiment)
        template = made.template
        say("no template: deriving one from the kernel")
        for note in made.notes:
            typer.echo(f"  {note.what}: {note.why}", err=True)
    if reasons := source_violations(experiment, template):
        raise NothingValid("the source rules refuse the template:\n  " + "\n  ".join(reasons))
    return replace(experiment, template=template)


def machine_has_gpu() -> bool:
    """Whether this machine has a GPU that a backend can use."""
    names = [backend.name for backend in backends() if backend.gpu_only]
    return any(found.device is not None for found in list_devices(names))


def begin_looking_for_devices(spec: str) -> None:
    """Begin to look for the devices that a spec is for; does not wait.

    It takes as long as the imports of a run, which finds them remembered. Errors of the spec are
    left to that. A command that ends meanwhile forks no more children, which is a RuntimeError.
    """

    def look() -> None:
        with suppress(KernelwrightError, RuntimeError):
            experiment = load_experiment(find_spec(spec, machine_has_gpu), SECTIONS)
            list_devices((experiment.kernel.language,))

    threading.Thread(target=look, name="devices", daemon=True).start()
