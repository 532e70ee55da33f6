"""The documents are up to date with the code, and what they point to is there."""

import re
import runpy
from pathlib import Path

import pytest
import typer.main

from agents.settings import SECTIONS
from cluster.cli.main import app
from docs.generate import documents, spec_fields
from tuner.experiment.load import load_experiment
from tuner.experiment.schema import json_schema

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "cluster", "tuner", "workers")
COMMANDS = typer.main.get_command(app).commands
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_generated_documents_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == documents()[path], "run: python -m docs.generate"


def test_every_field_of_a_spec_has_a_row() -> None:
    schema = json_schema(SECTIONS)
    sections = spec_fields(schema).split("### ")[1:]
    listed = {
        section.split()[0]: set(re.findall(r"^\| `(\w+)` \|", section, re.M))
        for section in sections
    }
    models = {"Experiment": schema, **schema["$defs"]}
    assert listed == {name: set(model["properties"]) for name, model in models.items()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.M)
            assert anchor in {
                re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings
            }, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_named_in_pages_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    folders = "agents|cluster|deploy|docs|tests|tuner|workers"
    for name in re.findall(rf"`((?:{folders})/[\w/.*-]*)`", text):
        assert list(ROOT.glob(name)), name
    for module in re.findall(r"python -m ((?:docs|tests)(?:\.\w+)+)", text):
        assert ROOT.joinpath(*module.split(".")).with_suffix(".py").exists(), module


def options(name: str) -> set[str]:
    """The options of a command and of its own commands; ``submit`` takes those of ``run`` too."""
    commands = [COMMANDS[name], *getattr(COMMANDS[name], "commands", {}).values()]
    own = {one for command in commands for given in command.params for one in given.opts}
    return own | options("run") if name == "submit" else own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_pages_have_their_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, words in re.findall(r"\bkernelwright ([a-z]+)\b([^`\n]*)", text):
        own = words.partition(" -- ")[0].partition("#")[0]  # an application has options, too
        for option in re.findall(r" (--[a-z][\w-]*)", own):
            assert option in options(name), f"{name} {option}"


def test_messages_in_troubleshooting_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = text.partition("## Common errors")[2].partition("\n## ")[0]
    messages = [
        m
        for first in re.findall(r"^\| (.*?) \|", rows, re.M)
        for m in re.findall(r"`([^`]+)`", first)
    ]
    code = " ".join(
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    for message in messages:
        for part in message.split("…"):
            assert part.strip() in joined, message


def test_the_python_example_runs() -> None:
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/search.md").read_text("utf-8"), re.S
    )
    found: dict[str, object] = {}
    exec(example, found)
    assert found["best"] == {"BLOCK": 2, "VEC": 0}


def test_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_spec_from_arrays_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/python.md").read_text("utf-8")
    example = next(
        found for found in re.findall(r"```python\n(.*?)```", text, re.S) if "write_spec(" in found
    )
    (tmp_path / "example.py").write_text(example.partition("result =")[0])
    (tmp_path / "vector_add.cu").write_text(
        "__global__ void vector_add(float *c, const float *a, const float *b, int n) {\n"
        "  int i = blockIdx.x * block_size_x + threadIdx.x;\n"
        "  if (i < n) c[i] = a[i] + b[i];\n}\n"
    )
    monkeypatch.chdir(tmp_path)
    spec = runpy.run_path("example.py")["spec"]
    assert spec == Path("vector_add", "spec.yaml")
    template = load_experiment(spec, SECTIONS).template
    assert template is not None
    assert list(template.parameters) == ["block_size_x"]
