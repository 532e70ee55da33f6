"""Validates YAML data as the experiment's dataclasses, and rewords pydantic's errors.

Translates the location of an error to a path in the file, reports only the branch of a union that
the author meant, and names keys that are planned but not supported.
"""

import copy
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tuner.experiment import contents, model
from tuner.experiment.model import ShapeBinding
from tuner.experiment.problems import Problem
from tuner.experiment.yaml_document import Data, Document, Path
from tuner.expressions import closest, described, nearest

T = TypeVar("T")

_CLASSES = {
    name: thing
    for name, thing in (*vars(contents).items(), *vars(model).items())
    if isinstance(thing, type)
}
_NOT_SUPPORTED = {
    "textures": "textures",
    "hip": "HIP",
    "texture": "a texture",
    "tensor_map": "a tensor map",
    "surface": "a surface",
}
_CHANGED = {
    "unordered": "name the groups within which order is free: {unordered: whole}, {unordered: "
    "rows}, {unordered: {segments: ARGUMENT}} or {unordered: {key: ARGUMENT}}",
    "offsets": "give the last value: {offsets: END}",
}
"""Words that take a value."""
_TYPES = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
}


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def adapter(cls: type[T]) -> TypeAdapter[T]:
    """The validator of one of the experiment's classes, cached."""
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def validate(
    cls: type[T],
    data: Data,
    document: Document,
    directory: FilePath | None,
    problems: list[Problem],
    at: Path = (),
) -> tuple[T | None, list[Path]]:
    """Validate data of a document.

    Appends to ``problems``. Paths in the data are relative to ``directory``; ``None`` refuses
    files. ``at`` is the data's own path in the document. Returns the object, or ``None``, and the
    paths with problems.
    """
    made, errors = _validated(cls, data, directory)
    found = list(_messages(cls, errors))
    problems += [document.problem((*at, *p), text, at_key=at_key) for p, text, at_key in found]
    return made, [(*at, *path) for path, _, _ in found]


def mended(cls: type, data: Data, directory: FilePath | None) -> Data:
    """A copy of invalid data with stand-ins for what is wrong, so that the rest can be checked.

    A misspelt key gets its name, a misspelt choice the closest one, an expression the value 1.
    """
    copied = copy.deepcopy(data)
    for item in _validated(cls, data, directory)[1]:
        # What a path led through may have been replaced already.
        with suppress(KeyError, IndexError, TypeError):
            if item.path and item.type != "missing":
                _mend(cls, item, _at(copied, item.path[:-1]))
    return copied


def _validated(
    cls: type[T], data: Data, directory: FilePath | None
) -> tuple[T | None, "list[_Located]"]:
    """The object of some data, or its errors."""
    context = {"directory": directory} if directory else None
    try:
        # As JSON: strict validation of Python data would demand tuples and instances.
        return adapter(cls).validate_json(json.dumps(data), context=context), []
    except ValidationError as error:
        return None, _meant([_Located(e, data) for e in error.errors(include_url=False)], data)


def _mend(cls: type, item: "_Located", parent: Data) -> None:
    """Replace one wrong value of ``parent``, or the key of one."""
    key = item.path[-1]
    if item.type == "unexpected_keyword_argument" and isinstance(parent, dict):
        known = _field_names(_owner(cls, item)) - parent.keys()
        value, meant = parent.pop(str(key), None), closest(str(key), known)
        if meant is not None:
            parent[meant] = value
        return
    choices = _choices(item)
    stand_in: Data = closest(str(item.data), choices) or (choices[0] if choices else 1)
    if isinstance(parent, dict):
        parent[str(key)] = stand_in
    elif isinstance(parent, list):
        parent[int(key)] = stand_in


class _Located:
    """A pydantic error, its path in the data, and the union branches on the way to it."""

    def __init__(self, error: ErrorDetails, data: Data) -> None:
        self.error = error
        self.type = error["type"]
        path: list[str | int] = []
        self.branches: list[tuple[Path, str]] = []
        for step in error["loc"]:
            if (isinstance(data, dict) and step in data) or (
                isinstance(data, list) and isinstance(step, int) and step < len(data)
            ):
                data = data[step]  # type: ignore[index]
                path.append(step)
            elif step == "[key]":  # the key itself is wrong
                data = path[-1]
            else:
                self.branches.append((tuple(path), str(step)))
        self.path: Path = tuple(path)
        self.data = data
        if self.type == "missing":
            # The last step is the missing key itself, which the data does not have.
            self.missing = self.branches.pop()[1]


def _meant(located: list[_Located], data: Data) -> list[_Located]:
    """The errors, less those of union branches that the author did not mean."""
    meant = {path: _branch(_at(data, path), tags) for path, tags in _unions(located).items()}
    return [
        item
        for item in located
        if all(meant.get(path) in (tag, None) for path, tag in item.branches)
    ]


def _unions(located: Iterable[_Located]) -> dict[Path, list[str]]:
    unions: dict[Path, list[str]] = defaultdict(list)
    for item in located:
        for path, tag in item.branches:
            if tag not in unions[path]:
                unions[path].append(tag)
    return {path: tags for path, tags in unions.items() if len(tags) > 1}


def _at(data: Data, path: Path) -> Data:
    for step in path:
        data = data[step]  # type: ignore[index]
    return data


def _branch(data: Data, tags: list[str]) -> str | None:
    """The branch whose keys resemble the mapping's most; ``None`` keeps all branches."""
    candidates = [tag for tag in tags if tag in _CLASSES]
    if not isinstance(data, dict) or not candidates:
        return None

    def likeness(tag: str) -> float:
        known = _field_names(_CLASSES[tag])
        return sum(1.0 if key in known else 0.5 * bool(closest(key, known)) for key in data)

    return max(candidates, key=likeness)


def _field_names(cls: type | None) -> frozenset[str]:
    return (
        frozenset(field.name for field in fields(cls)) if cls and is_dataclass(cls) else frozenset()
    )


def _messages(cls: type, located: list[_Located]) -> Iterator[tuple[Path, str, bool]]:
    """Path, message and whether it is about the key there: one per wrong value."""
    by_value: dict[Path, list[_Located]] = defaultdict(list)
    misspelt: set[tuple[Path, str | None]] = set()
    for item in located:
        if item.type == "unexpected_keyword_argument":
            known = _field_names(_owner(cls, item))
            misspelt.add((item.path[:-1], closest(str(item.path[-1]), known)))
            yield item.path, _unknown_key(str(item.path[-1]), known), True
        elif item.type != "missing" and not (item.type == "too_short" and item.data):
            by_value[item.path].append(item)
    short: dict[Path, str] = {}
    for item in located:
        if item.type == "missing" and isinstance(item.data, list):
            needed, given = int(item.missing) + 1, len(item.data)
            short[item.path] = f"needs {needed} values, not {given}"  # the last one missing counts
        elif item.type == "missing" and (item.path, item.missing) not in misspelt:
            yield item.path, f"missing key '{item.missing}'", True
    for path, text in short.items():
        yield path, text, False
    for path, items in by_value.items():
        yield path, _message(items), False


def _unknown_key(key: str, known: frozenset[str]) -> str:
    if key in _NOT_SUPPORTED:
        return f"'{key}': {_NOT_SUPPORTED[key]} is not supported yet"
    hint = nearest(key, known) or (f"; there are: {', '.join(sorted(known))}" if known else "")
    return f"unknown key '{key}'{hint}"


def _owner(cls: type, error: _Located) -> type | None:
    """The dataclass that the mapping with an unknown key stands for."""
    path = error.path[:-1]
    branches = dict(error.branches)
    owner: type | None = cls
    for length, step in enumerate(path, start=1):
        branch = branches.get(path[:length])
        if branch in _CLASSES:
            owner = _CLASSES[branch]
        elif isinstance(step, str) and owner is not None:
            hints = {field.name: field.type for field in fields(owner)}
            owner = _dataclass_in(hints.get(step))
    return owner


def _dataclass_in(annotation: Any) -> type | None:
    """The one experiment class inside an annotation such as ``tuple[Argument, ...]``."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return annotation if annotation.__name__ in _CLASSES else None
    parts = (_dataclass_in(part) for part in getattr(annotation, "__args__", ()))
    return next((part for part in parts if part not in (None, ShapeBinding)), None)


def _wanted(error: _Located) -> str:
    if error.type == "literal_error":
        return str(error.error["ctx"]["expected"])
    if error.type in ("dataclass_type", "dataclass_exact_type"):
        tag = error.branches[-1][1] if error.branches else ""
        keys = ", ".join(field.name for field in fields(_CLASSES[tag])) if tag in _CLASSES else ""
        return f"a mapping with {keys}" if keys else "a mapping"
    wanted = error.error["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return _TYPES.get(error.type, wanted)


def _message(errors: list[_Located]) -> str:
    """One message for a wrong value, merged over the branches of a union."""
    first = errors[0]
    for error in errors:
        if error.type == "value_error":
            return str(error.error["ctx"]["error"])
    if isinstance(first.data, str) and first.data in _NOT_SUPPORTED:
        return f"'{first.data}': {_NOT_SUPPORTED[first.data]} is not supported yet"
    if isinstance(first.data, str) and first.data in _CHANGED and _union(errors):
        return _CHANGED[first.data]
    given = described(first.data)
    if first.type == "string_pattern_mismatch":
        pattern = first.error["ctx"]["pattern"]
        return f"{given} is not a name that may stand here: it must match {pattern}"
    if first.type == "string_too_long":
        limit = first.error["ctx"]["max_length"]
        return f"{given} has {len(str(first.data))} characters; at most {limit} are allowed"
    if first.type in ("too_short", "too_long"):
        limit = first.error["ctx"].get("min_length") or first.error["ctx"].get("max_length")
        return f"needs at {'least' if first.type == 'too_short' else 'most'} {limit} entries"
    wanted = " or ".join(dict.fromkeys(map(_wanted, errors)))
    choices = [choice for error in errors for choice in _choices(error)]
    return f"should be {wanted}, not {given}{nearest(str(first.data), choices)}"


def _union(errors: list[_Located]) -> bool:
    """Whether a value of another form could stand there."""
    return any(error.type in ("dataclass_type", "dataclass_exact_type") for error in errors)


def _choices(error: _Located) -> list[str]:
    expected = str(error.error.get("ctx", {}).get("expected", ""))
    return re.findall(r"'([^']*)'", expected)
