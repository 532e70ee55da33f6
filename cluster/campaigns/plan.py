"""What a campaign is to run: read from a YAML file, or from a folder of specs.

:func:`load_campaign` checks the campaign alone, :func:`check_specs` its specs.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from agents.settings import SECTIONS, ModelId
from cluster.commands.find_spec import bundled_file, bundled_names
from tuner.errors import SpecError
from tuner.experiment.contents import STRICT, Count, Seconds
from tuner.experiment.fields import read_text
from tuner.experiment.load import load_experiment
from tuner.experiment.problems import Problem, SpecProblems
from tuner.experiment.validation import validate
from tuner.experiment.yaml_document import Document, parse
from tuner.files import check_text, plain_name

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"

MOST_RUNS = 1000

LEAST_SECONDS = 10.0
"""No run is begun with less time than this left: it would not even measure its baseline."""

Name = Annotated[str, Field(pattern=NAME, max_length=100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One spec of a campaign, and what its run may use."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    spec: str
    """A YAML file, relative to the campaign's, or the name of a bundled experiment."""
    name: Name | Literal[""] = ""
    """The folder of the run; by default the name of the spec's file."""
    priority: int = 0
    """Runs with a higher one begin earlier; equal ones in the order of the file."""
    gpus: Count = 1
    """GPUs that the run takes, on Ray."""
    seconds: Seconds | None = None
    """Time of the run; by default an equal share of the campaign's, or what the spec says."""
    trials: Count | None = None
    """Configurations to try at most, in place of the spec's."""
    model: ModelId | None = None
    """Who writes templates, in place of the spec's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A campaign: its runs in order of their priority, with absolute paths and distinct names."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    version: Literal[1]
    name: Name | Literal[""] = ""
    """What the campaign's folder is called; by default as its file."""
    seconds: Seconds | None = None
    """Time of the whole campaign, for example of a night, summed over all times it is continued."""
    runs: Annotated[tuple[PlannedRun, ...], Field(min_length=1, max_length=MOST_RUNS)]
    """The specs."""


def load_campaign(path: Path) -> Campaign:
    """The campaign of a YAML file, or of all specs in a folder.

    Raises:
        SpecError: it is neither, or something in it is wrong, each with its place.
        EnvironmentProblem: a path is not UTF-8.
    """
    path = path.absolute()
    check_text(path)
    if path.is_dir():
        return _of_folder(path)
    try:
        document = parse(read_text(path), str(path))
    except ValueError as error:
        raise SpecError(str(error)) from None
    problems: list[Problem] = []
    made, _ = validate(Campaign, copy.deepcopy(document.data), document, None, problems)
    if made is not None:
        problems += _missing(made, document, path.parent)
        made = _settled(made, path)
        problems += _same_names(made, document)
    if document.problems or problems or made is None:
        raise SpecProblems.of([*document.problems, *problems])
    return replace(made, runs=tuple(sorted(made.runs, key=lambda run: -run.priority)))


def check_specs(runs: Iterable[PlannedRun]) -> None:
    """Load the specs of runs; bundled ones are not looked at.

    Raises:
        SpecError: some are wrong, with the problems of all.
    """
    wrong = []
    for spec in dict.fromkeys(run.spec for run in runs if Path(run.spec).is_absolute()):
        try:
            load_experiment(spec, SECTIONS)
        except SpecError as error:
            wrong.append(str(error))
    if wrong:
        raise SpecError("\n".join(wrong))


def _of_folder(folder: Path) -> Campaign:
    """All files of a folder that look like a spec; those in its own folders are not looked at."""
    specs = [file for file in sorted(folder.glob("[!.]*.y*ml")) if _has_kernel(file)]
    if not 1 <= len(specs) <= MOST_RUNS:
        raise SpecError(
            f"{folder} has {len(specs)} specs, .yaml files with the key 'kernel'; a campaign has 1 "
            f"to {MOST_RUNS}"
        )
    named: dict[str, Path] = {}
    for file in specs:
        check_text(file)
        name = plain_name(file.stem)
        if name in named:
            raise SpecError(f"{named[name]} and {file} would both be called '{name}': rename one")
        named[name] = file
    runs = tuple(PlannedRun(spec=str(file), name=name) for name, file in named.items())
    return Campaign(version=1, name=plain_name(folder.name), runs=runs)


def _has_kernel(file: Path) -> bool:
    """Whether it has a spec's key; also where it cannot be read, so that loading it says why."""
    try:
        data = parse(read_text(file), str(file)).data
    except (ValueError, SpecError):
        return True
    return isinstance(data, dict) and "kernel" in data


def _settled(campaign: Campaign, path: Path) -> Campaign:
    """With names for all, and paths from the file's folder."""
    stems = Counter(Path(run.spec).stem for run in campaign.runs)
    runs = []
    for run in campaign.runs:
        spec = Path(run.spec)
        longer = f"{spec.parent.name}_{spec.stem}" if spec.parent.name else spec.stem
        name = run.name or plain_name(spec.stem if stems[spec.stem] == 1 else longer)
        runs.append(replace(run, name=name, spec=_located(run.spec, path.parent) or run.spec))
    return replace(campaign, name=campaign.name or plain_name(path.stem), runs=tuple(runs))


def _located(spec: str, folder: Path) -> str | None:
    """The absolute path of a spec, or the name of a bundled one; ``None`` if it is neither."""
    if (folder / spec).is_file():
        return str(folder / spec)
    return spec if spec in bundled_names() or bundled_file(spec) else None


def _missing(campaign: Campaign, document: Document, folder: Path) -> Iterator[Problem]:
    for index, run in enumerate(campaign.runs):
        if _located(run.spec, folder) is None:
            words = f"no such file, and no bundled experiment: {run.spec}"
            yield document.problem(("runs", index, "spec"), words)


def _same_names(campaign: Campaign, document: Document) -> Iterator[Problem]:
    names = Counter(run.name for run in campaign.runs)
    for index, run in enumerate(campaign.runs):
        if names[run.name] > 1:
            words = f"another run is called {run.name!r}, too: give each a `name`"
            yield document.problem(("runs", index), words)
