"""Write the generated parts of the documents: ``python -m docs.generate``.

With ``--check`` nothing is written, and the exit code counts the documents that are out of date.

``spec.md`` gets the fields of a spec from the models, ``commands.md`` the options from the command
line. What stands above the marker in a document is written by hand and kept.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from agents.settings import SECTIONS
from cluster.cli.main import app
from tuner.experiment.schema import json_schema

FOLDER = Path(__file__).parent
MARKER = "<!-- Generated below this line by `python -m docs.generate`; do not edit. -->\n"
VALUES = {str: "TEXT", Path: "PATH", int: "NUMBER", float: "NUMBER"}


def documents() -> dict[Path, str]:
    """The full text of each document that has a generated part."""
    parts = {"spec.md": spec_fields(json_schema(SECTIONS)), "commands.md": command_options()}
    texts = {}
    for name, generated in parts.items():
        by_hand, marker, _ = (FOLDER / name).read_text(encoding="utf-8").partition(MARKER)
        assert marker, f"{name} lost its marker"
        texts[FOLDER / name] = f"{by_hand}{MARKER}\n{generated}"
    return texts


def spec_fields(schema: dict[str, Any]) -> str:
    """A table of fields for each model, in the order in which they are first referred to."""
    models = {"Experiment": schema, **schema["$defs"]}
    sections = []
    for name in _reachable(models, "Experiment"):
        model = models[name]
        required = model.get("required", ())
        rows = [
            f"| `{field}` | {_type(found)} | {_default(found, field in required)} "
            f"| {found['description']} |\n"
            for field, found in model["properties"].items()
        ]
        head = "| field | type | default | meaning |\n|---|---|---|---|\n"
        about = model["description"].replace("``", "`")
        sections.append(f"### {name}\n\n{about}\n\n{head}{''.join(rows)}")
    return "\n".join(sections)


def _reachable(models: dict[str, Any], name: str) -> list[str]:
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            order.append(name)
            for reference in _references(models[name]["properties"]):
                visit(reference)

    visit(name)
    return order


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        for key, item in schema.items():
            yield from [item.rpartition("/")[2]] if key == "$ref" else _references(item)


def _type(schema: dict[str, Any]) -> str:
    """What may be written for a field, in words."""
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"anyOf": [one, {"type": "array", "items": same}]} if one == same:
            return f"{_type(one)}, or a list"
        case {"anyOf": choices}:
            return " or ".join(dict.fromkeys(_type(c) for c in choices if c.get("type") != "null"))
        case {"type": "array", "prefixItems": items}:
            return f"({', '.join(map(_type, items))})"
        case {"type": "array", "items": item}:
            return f"list of {_type(item)}"
        case {"type": "object", "properties": {"file": _}}:
            return "`{file: PATH}`"
        case {"type": "object", "properties": _}:
            return "symbols by name"
        case {"type": "object", "additionalProperties": value}:
            return f"{_type(value)} by name"
        case {"type": list()}:
            return "expression"
        case {"format": "real-expression"}:
            return "real expression"
        case {"type": "object"}:
            return "mapping"
    return f"{schema['type']}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    match schema:
        case {"minimum": lowest, "maximum": highest}:
            return f", {lowest} to {highest}"
        case {"exclusiveMinimum": lowest, "exclusiveMaximum": highest}:
            return f" between {lowest} and {highest}"
        case {"exclusiveMinimum": lowest, "maximum": highest}:
            return f" > {lowest}, at most {highest}"
        case {"minimum": lowest}:
            return f" ≥ {lowest}"
        case {"exclusiveMinimum": lowest}:
            return f" > {lowest}"
    return ""


def _default(schema: dict[str, Any], required: bool) -> str:
    match schema.get("default"):
        case _ if required:
            return "required"
        case {"text": text}:
            return f"`{text}`"
        case None | "" | [] | {}:
            return ""
        case dict():
            return "all defaults"
        case value:
            return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def command_options() -> str:
    """A section for each command: its arguments, what it does, its options."""
    return "\n".join(
        _command(f"{prefix} {info.name or info.callback.__name__}", info.callback)
        for prefix, group in _groups()
        for info in group.registered_commands
        if info.callback is not None
    )


def _groups() -> Iterator[tuple[str, typer.Typer]]:
    yield "kernelwright", app
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield f"kernelwright {group.name}", group.typer_instance


def _command(name: str, callback: Callable[..., object]) -> str:
    usage, rest, rows = name, "", ""
    parameters = inspect.signature(callback).parameters
    for parameter, hint in get_type_hints(callback, include_extras=True).items():
        if parameter == "return":
            continue
        info = hint.__metadata__[0]
        optional = parameters[parameter].default is not inspect.Parameter.empty
        if isinstance(info, ArgumentInfo):
            written = str(info.metavar)
            if get_origin(hint.__origin__) is list:  # another command line ends this one
                rest += f" {written}"
            else:
                usage += f" [{written}]" if optional else f" {written}"
        else:
            # In an Annotated, typer keeps an option's first name where its default would be.
            names = ", ".join((info.default, *info.param_decls))
            written = f"{names}{_value(hint.__origin__, info.metavar)}"
            usage += "" if optional else f" {written}"
        rows += f"| `{written}` | {info.help} |\n"
    table = f"\n| argument or option | meaning |\n|---|---|\n{rows}" if rows else ""
    return f"### {name}\n\n`{usage}{rest}`\n\n{inspect.getdoc(callback)}\n{table}"


def _value(hint: Any, metavar: str | None) -> str:
    """The value that an option takes, as its help shows it."""
    while inner := [kind for kind in get_args(hint) if kind is not NoneType]:
        hint = inner[0]
    if hint is bool:
        return ""
    if issubclass(hint, StrEnum):
        return f" {' or '.join(hint)}"
    return f" {metavar or VALUES[hint]}"


def main(*, check: bool) -> int:
    """Write the documents that are out of date, or with ``check`` only name them; count them."""
    stale = {path: text for path, text in documents().items() if path.read_text("utf-8") != text}
    for path, text in stale.items():
        sys.stderr.write(f"{path.name} is out of date\n")
        if not check:
            path.write_text(text, encoding="utf-8")
    return len(stale) if check else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
