"""The folders ``variants/<digest>/`` of a run: every searched template and where it came from.

They are derived from the loop's steps and can be written again at any time.
"""

import json
from dataclasses import dataclass
from pathlib import Path, PurePath

from pydantic import TypeAdapter, ValidationError

from agents.planning import Variant
from agents.replies import Suggestion
from agents.verdict import VERDICTS
from tuner.experiment.model import Template
from tuner.experiment.validation import adapter
from tuner.files import UnreadableFile, make_folder, read_bounded, write_whole

_FILE_BYTES = 16 << 20

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
        template = adapter(Template).dump_python(variant.template, mode="json")
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


@dataclass(frozen=True, slots=True)
class About:
    """Where a variant came from: its round, and the variant that the round started from."""

    round: int
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVariant:
    """A variant as its folder, named ``digest``, holds it."""

    digest: str
    about: About
    template: Template


_ABOUTS: TypeAdapter[About] = TypeAdapter(About)


def read_variants(directory: Path) -> dict[str, StoredVariant]:
    """All variants by digest, in the order of their rounds; without those that cannot be read."""
    found = []
    for folder in directory.glob("*/"):
        try:
            about = read_bounded(folder / "about.json", _FILE_BYTES)
            template = read_bounded(folder / "template.json", _FILE_BYTES)
            found.append(
                StoredVariant(
                    digest=folder.name,
                    about=_ABOUTS.validate_json(about or ""),
                    template=adapter(Template).validate_json(template or ""),
                )
            )
        except (UnreadableFile, ValidationError):
            continue
    found.sort(key=lambda one: (one.about.round, one.digest))
    return {one.digest: one for one in found}
