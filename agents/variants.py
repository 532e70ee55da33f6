"""The folders ``variants/<digest>/`` of a run: every searched template and where it came from.

They are derived from the loop's steps and can be written again at any time.
"""

import json
from pathlib import Path, PurePath

from pydantic import TypeAdapter

from agents.planning import Variant
from agents.replies import Suggestion
from agents.verdict import VERDICTS
from tuner.experiment.model import Template
from tuner.files import make_folder, write_whole

_TEMPLATES: TypeAdapter[Template] = TypeAdapter(Template)
_SUGGESTIONS: TypeAdapter[Suggestion] = TypeAdapter(Suggestion)


def write_variants(directory: Path, variants: tuple[Variant, ...]) -> None:
    """Write each variant's source, ``template.json`` and ``about.json``.

    Raises:
        EnvironmentProblem: A file cannot be written.
    """
    for variant in variants:
        folder = directory / variant.digest
        make_folder(folder)
        source = variant.template.source
        template = _TEMPLATES.dump_python(variant.template, mode="json")
        about = {
            "round": variant.round,
            "parent": variant.parent,
            "rationale": variant.template.rationale,
            "suggestion": _SUGGESTIONS.dump_python(variant.suggestion, mode="json"),
            "verdict": VERDICTS.dump_python(variant.verdict, mode="json"),
        }
        write_whole(folder / PurePath(source.name).name, source.text)
        write_whole(folder / "template.json", json.dumps(template, ensure_ascii=False, indent=1))
        write_whole(folder / "about.json", json.dumps(about, ensure_ascii=False, indent=1))
