"""The template: parameters, the search's seeds, and scratch buffers."""

import re
from collections.abc import Iterator

from tuner.csource.tree import without_comments
from tuner.experiment.check.arguments import MAX_ALIGN, check_dtype
from tuner.experiment.check.expressions import launches, places
from tuner.experiment.check.finding import ANYTHING, Finding, listed
from tuner.experiment.check.names import type_symbols
from tuner.experiment.model import Experiment, Template
from tuner.experiment.yaml_document import Path
from tuner.trial import Value

MAX_VALUES = 10_000
_TYPE = (
    r"\b(?:(?:u|unsigned\s+)?(?:char|short|int|long)\d*|(?:float|double|half|bool)\d*|void|auto"
    r"|unsigned|size_t|\w+_t)\b"
)
"""A type at the end of a declaration's specifiers."""


def check_template(experiment: Experiment, found: list[Finding]) -> Iterator[Finding]:
    """Parameters are valid and used, seeds name them, and scratch buffers have valid types.

    A parameter that ``found`` already names is not also reported as unused.
    """
    wrong = {finding.path for finding in found}
    template = experiment.template
    if template is None:
        return
    read = {
        name
        for place in places(experiment)
        if place.path[0] == "template"
        for name in place.expression.names
    }
    for name, values in template.parameters.items():
        path: Path = ("template", "parameters", name)
        message = _values_problem(name, values)
        if message or (path not in wrong and (message := _collision(template, name))):
            yield Finding(path, message)
        elif path not in wrong and name not in read and not _in_source(template, name, values):
            message = (
                f"parameter '{name}' is used neither in {template.source.name} nor in a launch"
            )
            yield Finding(path, message, ANYTHING)
    for index, seed in enumerate(experiment.search.seeds):
        if not seed.keys() & template.parameters.keys():
            known = listed(template.parameters)
            message = f"the seed sets no parameter of the template; there are: {known}"
            yield Finding(("search", "seeds", index), message, ANYTHING)
    types = type_symbols(experiment)
    for index, scratch in enumerate(template.scratch):
        path = ("template", "scratch", index)
        yield from check_dtype((*path, "dtype"), scratch.dtype, types)
        align = scratch.align or 1
        if align & (align - 1) or align > MAX_ALIGN:
            message = f"align must be a power of two of at most {MAX_ALIGN} bytes"
            yield Finding((*path, "align"), message)


def _values_problem(name: str, values: tuple[Value, ...]) -> str | None:
    kinds = {type(value) for value in values}
    if len(kinds) > 1:
        return f"{name}: values must be all integers, all bools, or all names"
    if len(set(values)) < len(values):
        duplicate = next(value for value in values if values.count(value) > 1)
        return f"{name}: duplicate value {duplicate}"
    if len(values) > MAX_VALUES:
        return f"{name}: {len(values)} values; at most {MAX_VALUES}"
    for value in values:
        if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_]{1,64}", value):
            return f"{name}: '{value}' cannot be part of a macro's name"
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"{name}: {value} does not fit 64 bits"
    return None


def _collision(template: Template, name: str) -> str | None:
    """What of the source a parameter's macro would replace."""
    source = template.source
    if name == template.entry.partition("<")[0].rpartition("::")[2]:
        role = "is the entry"
    elif re.search(
        rf"{_TYPE}[\s*&]+(?:const\s+)?{name}\s*[=;,)\[(:]", without_comments(source.text)
    ):
        role = f"is declared in {source.name}"
    elif re.search(rf"\b{name}\s*\(", without_comments(source.text)):
        role = f"is called in {source.name}"
    else:
        return None
    return f"'{name}' {role}, which its macro would replace: choose a name of its own"


def _in_source(template: Template, name: str, values: tuple[Value, ...]) -> bool:
    """Whether the source or an entry's name mentions the parameter."""
    entries = [template.entry, *(launch.entry or "" for _, launch in launches((), template))]
    if any(f"{{{name}}}" in entry for entry in entries):
        return True
    words = [name, *(f"{name}_{value}" for value in values if isinstance(value, str))]
    return bool(re.search(rf"\b(?:{'|'.join(words)})\b", without_comments(template.source.text)))
