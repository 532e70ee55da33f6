"""Loads experiments from YAML files, and writes and reads the copy that run directories keep.

All problems of a spec are collected and raised together.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import yaml

from tuner.errors import SpecError
from tuner.experiment.array_file import check_array_file
from tuner.experiment.check import ANYTHING, Finding, check
from tuner.experiment.contents import Fill, FromFile
from tuner.experiment.fields import read_text
from tuner.experiment.headers import check_include_folder, find_headers
from tuner.experiment.model import Argument, Experiment, ShapeBinding, Template
from tuner.experiment.problems import Problem, SpecProblems
from tuner.experiment.source_build import source_build
from tuner.experiment.validation import adapter, mended, validate
from tuner.experiment.yaml_document import Data, Document, parse
from tuner.experiment.yaml_document import Path as DataPath
from tuner.expressions import closest
from tuner.files import given_path, is_plain

T = TypeVar("T")

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NOT_TEXT = frozenset({"on", "off", "yes", "no", "true", "false", "null"})

NO_SECTIONS: Mapping[str, type] = MappingProxyType({})


@dataclass(slots=True)
class _Unread:
    """Parts of a spec that are wrong: keys that lead to them, and places of stand-ins for them."""

    names: set[str] = field(default_factory=set)
    places: set[DataPath] = field(default_factory=set)

    def explains(self, finding: Finding) -> bool:
        """Whether a finding may only follow from such a part."""
        absent = finding.absent
        if self.names and absent is not None:
            return absent == ANYTHING or closest(absent, self.names) is not None
        # A stand-in may contradict the kernel's signature, or its neighbours in the same mapping.
        start = finding.path[:2]
        if self.places and (start[:1] == ("kernel",) or finding.path[-1:] == ("entry",)):
            return True
        return any(place[: len(start)] == start for place in self.places)


def load_experiment(path: str | Path, sections: Mapping[str, type] = NO_SECTIONS) -> Experiment:
    """Load the experiment of a YAML file, with the text of every file that it names.

    ``sections`` has dataclasses of other layers, by the key whose mapping they validate.

    Raises:
        SpecProblems: All of its problems, each with its place.
    """
    path = Path(path)
    document = _read(path)
    problems: list[Problem] = []
    unread = _Unread()
    data = copy.deepcopy(document.data)
    template_document = document
    if isinstance(data, dict) and isinstance(data.get("template"), str):
        template, template_document = _template(document, path.parent, problems, unread)
        data.pop("template")
        if template:
            data["template"] = _as_data(template)
    for name, cls in sections.items():
        if isinstance(data, dict) and data.get(name) is not None:
            section, _ = validate(cls, data.pop(name), document, None, problems, at=(name,))
            data[name] = None if section is None else _as_data(section)
    experiment = _validated(Experiment, data, document, path.parent, problems, unread)
    if experiment:
        experiment = _with_files(experiment, document, path.parent, problems)
        for finding in check(experiment):
            if unread.explains(finding):
                continue
            if finding.path[0] == "template" and template_document is not document:
                problems.append(template_document.problem(finding.path[1:], finding.message))
            else:
                problems.append(document.problem(finding.path, finding.message))
    return _checked(experiment, problems, (document, template_document))


def problem_in(path: Path, where: DataPath, message: str) -> Problem:
    """A problem at a path of a spec that was already loaded."""
    return _read(path).problem(where, message)


@lru_cache(maxsize=8)
def load_resolved(text: str, name: str = "spec.resolved.yaml") -> Experiment:
    """Load what :func:`dump_resolved` wrote; it needs no other file.

    The last few are kept: a report reads the spec of each round several times, which takes 40 ms.

    Raises:
        SpecProblems: As :func:`load_experiment`.
    """
    document = parse(text, name)
    problems: list[Problem] = []
    experiment, _ = validate(Experiment, document.data, document, None, problems)
    if experiment:
        problems += [document.problem(found.path, found.message) for found in check(experiment)]
        for place, file in _file_names(experiment):
            if not is_plain(file):
                problems.append(document.problem(place, f"{file!r} is no name of a file beside it"))
    return _checked(experiment, problems, (document,))


def _file_names(experiment: Experiment) -> Iterator[tuple[DataPath, str]]:
    """The names under which sources and headers are written."""
    kernel, template = experiment.kernel, experiment.template
    yield ("kernel", "source"), kernel.source.name
    if template is not None:
        yield ("template", "source"), template.source.name
    for index, (name, _) in enumerate(kernel.headers):
        yield ("kernel", "headers", index), name


def _checked(
    experiment: Experiment | None, problems: list[Problem], documents: Iterable[Document]
) -> Experiment:
    """The experiment, or an error with all problems; a place has its YAML problem alone."""
    faults = [fault for document in documents for fault in document.problems]
    places = {(fault.file, fault.mark) for fault in faults}
    faults += [problem for problem in problems if (problem.file, problem.mark) not in places]
    if faults or experiment is None:
        raise SpecProblems.of(faults)
    return experiment


def dump_resolved(experiment: Experiment) -> str:
    """The experiment as YAML that needs no other file: sources inline, budgets explicit."""
    data = _as_data(experiment)
    assert isinstance(data, dict)
    for section in ("search", "confirm", "measure"):
        data[section] = adapter(type(getattr(experiment, section))).dump_python(
            getattr(experiment, section), mode="json"
        )
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def _as_data(thing: object) -> Data:
    data: Data = adapter(type(thing)).dump_python(thing, mode="json", exclude_defaults=True)
    return data


class _Dumper(yaml.SafeDumper):
    """Writes text in blocks or quotes, so that every YAML reader takes it for text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    block = "\n" in text and not any(one in text for one in "\x85\u2028\u2029")  # else "\n" is read
    style = None if plain else "|" if block else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _read(path: Path) -> Document:
    try:
        text = read_text(path)
    except ValueError as error:
        what = str(error).removeprefix(f"{path} ").removesuffix(f": {path}")
        raise SpecProblems.of([Problem(str(path), None, "", what)]) from None
    return parse(text, str(path))


def _template(
    document: Document, directory: Path, problems: list[Problem], unread: _Unread
) -> tuple[Template | None, Document]:
    """The template from a separate file, and that file's document."""
    assert isinstance(document.data, dict)
    try:
        path = given_path(directory, str(document.data["template"]))
        text = read_text(path)
    except ValueError as error:
        problems.append(document.problem(("template",), str(error)))
        return None, document
    try:
        found = parse(text, str(path))
    except SpecProblems as error:
        problems += error.problems
        return None, document
    made = _validated(Template, found.data, found, path.parent, problems, unread, ("template",))
    return made, found


def _validated(
    cls: type[T],
    data: Data,
    document: Document,
    directory: Path,
    problems: list[Problem],
    unread: _Unread,
    at: DataPath = (),
) -> T | None:
    """Validate; leave out or replace parts that are wrong, so that later checks can run.

    Those parts are added to ``unread``; ``at`` is the data's own path in the experiment.
    """
    made, paths = validate(cls, data, document, directory, problems)
    if made is not None:
        return made
    rest = copy.deepcopy(data)
    for path in paths:
        unread.names.update(step for step in path if isinstance(step, str))
        if not _prune(rest, path):
            return None
    made = validate(cls, rest, document, directory, [])[0]
    if made is None:  # what is wrong cannot be left out
        made = validate(cls, mended(cls, data, directory), document, directory, [])[0]
        unread.places.update((*at, *path) for path in paths)
    return made


def _prune(data: Data, path: DataPath) -> bool:
    """Delete the innermost key on ``path``; false if the path has no key."""
    keys = [length for length, step in enumerate(path) if isinstance(step, str)]
    if not keys:
        return False
    *above, key = path[: keys[-1] + 1]
    for step in above:
        if not (isinstance(data, dict | list)) or (isinstance(data, dict) and step not in data):
            return True
        data = data[step]  # type: ignore[index]
    if isinstance(data, dict):
        data.pop(str(key), None)
    return True


def _with_files(
    experiment: Experiment, document: Document, directory: Path, problems: list[Problem]
) -> Experiment:
    """The experiment with its headers, and with absolute paths of data files."""
    experiment = _as_built(experiment, document, directory, problems)
    headers = _headers(experiment, document, directory, problems)
    if experiment.kernel.headers:
        message = "headers are read from include_dirs, not written here"
        problems.append(document.problem(("kernel", "headers"), message))
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    arguments = []
    for index, argument in enumerate(experiment.arguments):
        if any(isinstance(f, FromFile) and f.sample for f in (argument.values, argument.initial)):
            message = "sample follows from the files, and is not written here"
            problems.append(document.problem(("arguments", index), message))
        arguments.append(_absolute(argument, directory, shapes[0]))
        try:
            check_array_file(arguments[-1], shapes)
        except (ValueError, OSError) as error:
            problems.append(document.problem(("arguments", index), str(error)))
    kernel = replace(experiment.kernel, headers=tuple(sorted(headers.items())))
    return replace(experiment, kernel=kernel, arguments=tuple(arguments))


def _as_built(
    experiment: Experiment, document: Document, directory: Path, problems: list[Problem]
) -> Experiment:
    """The experiment with what ``compile_commands`` says of the kernel's source."""
    kernel = experiment.kernel
    if kernel.compile_commands is None:
        return experiment
    section = document.data.get("kernel") if isinstance(document.data, dict) else None
    written = section.get("source") if isinstance(section, dict) else None
    place = directory / (written if isinstance(written, str) else kernel.source.name)
    try:
        commands = given_path(directory, kernel.compile_commands)
        built = source_build(place, directory, commands=commands)
    except (SpecError, ValueError) as error:
        problems.append(document.problem(("kernel", "compile_commands"), str(error)))
        return experiment
    macros = (one.partition("=")[::2] for one in built.defines)
    plain = {name: value or "1" for name, value in macros if _PLAIN.fullmatch(name)}
    kernel = replace(
        kernel,
        include_dirs=tuple(dict.fromkeys((*kernel.include_dirs, *built.include_dirs))),
        options=tuple(dict.fromkeys((*kernel.options, *built.options))),
        defines={**plain, **kernel.defines},
        compile_commands=None,
    )
    return replace(experiment, kernel=kernel)


def _headers(
    experiment: Experiment, document: Document, directory: Path, problems: list[Problem]
) -> dict[str, str]:
    """What the kernel's and the template's sources include, by name."""
    folders = []
    for index, given in enumerate(experiment.kernel.include_dirs):
        folder = directory / given
        try:
            check_include_folder(folder, directory)
            folders.append(folder)
        except (ValueError, OSError) as error:
            path: DataPath = ("kernel", "include_dirs", index)
            problems.append(document.problem(path, str(error)))
    headers: dict[str, str] = {}
    for key, subject in (("kernel", experiment.kernel), ("template", experiment.template)):
        if subject is None:
            continue
        section = document.data.get(key) if isinstance(document.data, dict) else None
        written = section.get("source") if isinstance(section, dict) else None
        beside = directory / section if isinstance(section, str) else directory / "spec"
        place = beside.with_name(subject.source.name)
        if isinstance(written, str):
            place = directory / written
        try:
            headers = find_headers(place, subject.source.text, folders) | headers
        except (ValueError, OSError) as error:
            problems.append(document.problem((key, "source"), str(error)))
    return headers


def _absolute(argument: Argument, directory: Path, first: ShapeBinding) -> Argument:
    def named(fill: Fill) -> Fill:
        if not isinstance(fill, FromFile):
            return fill
        found = FromFile(file=str((directory / fill.file).absolute()))
        with suppress(KeyError):  # reported where the file is looked at
            sample = found.at(first.symbols).file if found.differs else ""
            found = replace(found, sample=sample)
        return found

    return replace(argument, values=named(argument.values), initial=named(argument.initial))
