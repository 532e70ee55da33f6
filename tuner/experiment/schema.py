"""The JSON schema of experiments as authors write them, for editors."""

import ast
import inspect
import sys
from collections.abc import Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any

from tuner.experiment import contents, model, program
from tuner.experiment.load import NO_SECTIONS
from tuner.experiment.validation import adapter


def json_schema(sections: Mapping[str, type] = NO_SECTIONS) -> dict[str, Any]:
    """A JSON schema (draft 2020-12) that accepts every valid spec.

    ``sections`` are as in :func:`tuner.experiment.load.load_experiment`.
    """
    schema = adapter(model.Experiment).json_schema()
    definitions = schema["$defs"]
    for key, cls in sections.items():
        section = adapter(cls).json_schema()
        definitions |= section.pop("$defs", {})
        definitions[cls.__name__] = section
        reference = {"$ref": f"#/$defs/{cls.__name__}"}
        schema["properties"][key] = {"anyOf": [reference, {"type": "null"}], "default": None}
    # Read or made when a spec is loaded; and a template may be a file of its own.
    del definitions["Kernel"]["properties"]["headers"]
    del definitions["FromFile"]["properties"]["sample"]
    schema["properties"]["template"] = {
        "anyOf": [
            {"type": "string", "description": "path of the template's file, relative to this one"},
            {"$ref": "#/$defs/Template"},
        ]
    }
    described = {"Experiment": schema, **definitions}
    for module in (
        contents,
        program,
        model,
        *(sys.modules[cls.__module__] for cls in sections.values()),
    ):
        for name, descriptions in _field_descriptions(module).items():
            for field, description in descriptions.items():
                described[name]["properties"][field]["description"] = description
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Kernelwright experiment",
    }


def _field_descriptions(module: ModuleType) -> dict[str, dict[str, str]]:
    """The docstring below each field, by class and field, on one line each."""
    return {
        node.name: {
            field.target.id: " ".join(text.split())
            for field, below in pairwise(node.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(text := below.value.value, str)
        }
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    }
