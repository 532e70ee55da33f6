"""The JSON schema of experiments, for editors: what authors write rather than what is kept."""

from typing import Any

from tuner.experiment.model import Experiment
from tuner.experiment.validation import adapter


def json_schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) that accepts every spec that loads, and few others."""
    schema = adapter(Experiment).json_schema()
    definitions = schema["$defs"]
    # Headers are read from include_dirs, and a template may be a file of its own.
    del definitions["Kernel"]["properties"]["headers"]
    schema["properties"]["template"] = {
        "anyOf": [
            {"type": "string", "description": "path of the template's file, relative to this one"},
            {"$ref": "#/$defs/Template"},
        ]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Kernelwright experiment",
    }
