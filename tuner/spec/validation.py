"""From located YAML to the experiment's dataclasses, with pydantic's errors in a user's words.

Owns the translation of an error's location to a path in the file, the choice of the one branch of
a union that its author meant, and the names of keys that are planned but not supported.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tuner.expressions import nearest
from tuner.spec import experiment as vocabulary
from tuner.spec.experiment import ShapeBinding
from tuner.spec.problems import Problem
from tuner.spec.yaml_document import Data, Document, Path

T = TypeVar("T")

_CLASSES = {name: thing for name, thing in vars(vocabulary).items() if isinstance(thing, type)}
_NOT_SUPPORTED = {
    "agents": "rewriting by agents",
    "mode": "rewriting whole kernels",
    "clusters": "thread-block clusters",
    "cluster": "thread-block clusters",
    "programmatic": "programmatic dependent launch",
    "textures": "textures",
    "structs": "structs by value",
    "struct": "structs by value",
    "hip": "HIP",
    "texture": "a texture",
    "tensor_map": "a tensor map",
    "surface": "a surface",
}
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
    """The validator of one of the experiment's classes, made once."""
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def validate(
    cls: type[T],
    data: Data,
    document: Document,
    directory: FilePath | None,
    problems: list[Problem],
) -> tuple[T | None, list[Path]]:
    """Validate what a document holds.

    Args:
        cls: The dataclass to make.
        data: The document's data, or what of it is left.
        document: Where to look up places.
        directory: What paths in it are relative to; ``None``: it names no files.
        problems: Where to put what is wrong.

    Returns:
        The object, if nothing is; and the paths that are wrong.
    """
    try:
        # JSON, since strict validation of Python data would want tuples and instances.
        made = adapter(cls).validate_json(
            json.dumps(data), context={"directory": directory} if directory else None
        )
    except ValidationError as error:
        found = [
            (path, message, at_key)
            for errors in _by_value(error.errors(include_url=False), data)
            for path, message, at_key in _messages(cls, errors)
        ]
        problems += [document.problem(p, message, at_key=at_key) for p, message, at_key in found]
        return None, [path for path, _, _ in found]
    return made, []


class _Located:
    """One of pydantic's errors, its place in the data, and the branches of unions taken to it."""

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
            elif step != "[key]":
                self.branches.append((tuple(path), str(step)))
        self.path: Path = tuple(path)
        self.data = data
        if self.type == "missing":
            # The last step is the missing key itself, which no data holds.
            self.missing = self.branches.pop()[1]


def _by_value(errors: Iterable[ErrorDetails], data: Data) -> Iterable[list[_Located]]:
    """Errors in groups of one value each; of a union only those of the branch that was meant."""
    located = [_Located(error, data) for error in errors]
    meant: dict[Path, str | None] = {}
    for path, tags in _unions(located).items():
        meant[path] = _meant(_at(data, path), tags)
    groups: dict[Path, list[_Located]] = defaultdict(list)
    for item in located:
        if all(meant[path] in (tag, None) for path, tag in item.branches if path in meant):
            groups[item.path].append(item)
    return groups.values()


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


def _meant(data: Data, tags: list[str]) -> str | None:
    """The branch that shares most keys with a mapping; ``None`` where all have their say."""
    if not isinstance(data, dict):
        return None
    shared = {
        tag: len(_field_names(_CLASSES[tag]) & data.keys()) for tag in tags if tag in _CLASSES
    }
    best = max(shared, key=lambda tag: shared[tag], default=None)
    return best if best is not None and shared[best] else None


def _field_names(cls: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls)) if is_dataclass(cls) else frozenset()


def _messages(cls: type, errors: list[_Located]) -> Iterable[tuple[Path, str, bool]]:
    """What to say of one value: one message, save that several keys may be missing from it."""
    missing = [error for error in errors if error.type == "missing"]
    for error in missing:
        yield error.path, f"missing key '{error.missing}'", True
    rest = [error for error in errors if error.type != "missing"]
    if not rest:
        return
    first = rest[0]
    if first.type == "unexpected_keyword_argument":
        yield first.path, _unknown_key(cls, first), True
        return
    said = [error for error in rest if error.type in ("value_error", "literal_error")]
    if len(rest) > 1 and not any(error.type == "value_error" for error in said):
        wanted = " or ".join(dict.fromkeys(_wanted(error) for error in rest))
        yield first.path, f"should be {wanted}, not {_shown(first.data)}", False
        return
    yield first.path, _message((said or rest)[0]), False


def _unknown_key(cls: type, error: _Located) -> str:
    *above, key = error.path
    if str(key) in _NOT_SUPPORTED:
        return f"'{key}': {_NOT_SUPPORTED[str(key)]} is not supported yet"
    owner = _owner(cls, tuple(above), error)
    known = _field_names(owner) if owner else frozenset()
    hint = nearest(str(key), known)
    if not hint and known:
        hint = f"; there are: {', '.join(field.name for field in fields(owner))}"  # type: ignore[arg-type]
    return f"unknown key '{key}'{hint}"


def _owner(cls: type, path: Path, error: _Located) -> type | None:
    """The dataclass that the mapping at ``path`` should become."""
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
    return _TYPES.get(error.type, error.error["msg"].lower())


def _message(error: _Located) -> str:
    given = _shown(error.data)
    context = error.error.get("ctx", {})
    if error.type == "value_error":
        return str(context["error"])
    if error.type == "literal_error":
        if isinstance(error.data, str) and error.data in _NOT_SUPPORTED:
            return f"{given}: {_NOT_SUPPORTED[error.data]} is not supported yet"
        options = str(context["expected"])
        names = tuple(options.replace(" or ", ", ").replace("'", "").split(", "))
        return f"should be {options}, not {given}{nearest(str(error.data), names)}"
    if error.type == "string_pattern_mismatch":
        return f"{given} is not a name: letters, digits and underscores, not beginning with a digit"
    if error.type in ("too_short", "too_long"):
        return error.error["msg"].replace("Tuple", "the list").replace("Dictionary", "the mapping")
    if error.type in _TYPES or error.type.startswith("dataclass"):
        return f"should be {_wanted(error)}, not {given}"
    return f"{error.error['msg'].replace('Input should be', 'should be')}, not {given}"


def _shown(data: Data) -> str:
    if isinstance(data, dict):
        return "a mapping"
    if isinstance(data, list):
        return "a list"
    if data is None:
        return "nothing"
    if isinstance(data, bool):
        return str(data).lower()
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
