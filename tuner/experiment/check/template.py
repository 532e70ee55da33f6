"""The template: its parameters are well-formed and used, its work buffers have a type.

Seeds of the search speak of its parameters.
"""

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


def check_template(experiment: Experiment, found: list[Finding]) -> Iterator[Finding]:
    """Everything about the template that no other check looks at.

    A parameter that ``found`` already names is not also said to be unused.
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
        said = _values_problem(name, values)
        if said:
            yield Finding(path, said)
        elif path not in wrong and name not in read and not _in_source(template, name, values):
            said = f"parameter '{name}' is used neither in {template.source.name} nor in a launch"
            yield Finding(path, said, ANYTHING)
    for index, seed in enumerate(experiment.search.seeds):
        if not seed.keys() & template.parameters.keys():
            known = listed(template.parameters)
            said = f"the seed has no parameter of the template, whose are: {known}"
            yield Finding(("search", "seeds", index), said, ANYTHING)
    types = type_symbols(experiment)
    for index, scratch in enumerate(template.scratch):
        path = ("template", "scratch", index)
        yield from check_dtype((*path, "dtype"), scratch.dtype, types)
        align = scratch.align or 1
        if align & (align - 1) or align > MAX_ALIGN:
            said = f"align is a power of two up to {MAX_ALIGN}, in bytes"
            yield Finding((*path, "align"), said)


def _values_problem(name: str, values: tuple[Value, ...]) -> str | None:
    kinds = {type(value) for value in values}
    if len(kinds) > 1:
        return f"{name}: values are all integers, all bools, or all names"
    if len(set(values)) < len(values):
        again = next(value for value in values if values.count(value) > 1)
        return f"{name}: the value {again} stands twice"
    if len(values) > MAX_VALUES:
        return f"{name}: {len(values)} values; at most {MAX_VALUES}"
    for value in values:
        if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_]{1,64}", value):
            return f"{name}: '{value}' cannot be part of a macro's name"
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"{name}: {value} is beyond 64 bits"
    return None


def _in_source(template: Template, name: str, values: tuple[Value, ...]) -> bool:
    """Whether the source, or the name of an entry, speaks of the parameter."""
    entries = [template.entry, *(launch.entry or "" for _, launch in launches((), template))]
    if any(f"{{{name}}}" in entry for entry in entries):
        return True
    words = [name, *(f"{name}_{value}" for value in values if isinstance(value, str))]
    return bool(re.search(rf"\b(?:{'|'.join(words)})\b", without_comments(template.source.text)))
