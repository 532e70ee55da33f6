"""The settings of agents: who may take a role, and addresses without secrets."""

import json
import re

import pytest

from agents.settings import SECTIONS, AgentSettings, agent_settings
from tests.tuner.experiment import specs
from tuner.experiment.load import dump_resolved, load_experiment, load_resolved
from tuner.experiment.problems import SpecProblems
from tuner.experiment.redaction import hidden
from tuner.experiment.schema import json_schema

SECRET = "sekrit"


def told(folder, agents):
    """What is said of a spec with such agents."""
    with pytest.raises(SpecProblems) as raised:
        load_experiment(
            specs.write(folder, specs.SPEC.replace("version: 1", f"version: 1\nagents: {agents}")),
            SECTIONS,
        )
    return str(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        f"https://user:{SECRET}@host/v1",
        f"https://{SECRET}@host/v1",
        f"https://user:pass/{SECRET}@host",
        f"https://host/v1?api_key={SECRET}",
        f"https://host/v1?version=1&X-Auth-Token={SECRET}",
        f"https://host/v1#key={SECRET}",
        f"https://host/v1#{SECRET}",
        f"https://host/sk-{SECRET}/v1",
        f"ftp://user:{SECRET}@host/",
        f"//user:{SECRET}@host/",
        f"user:{SECRET}@host/v1",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_shown(tmp_path, address):
    words = told(tmp_path, f"{{base_url: '{address}', rounds: many}}")
    assert re.match(r".*spec\.yaml:2:20: (\w+:)?(//|\*)", words)
    assert "holds a user, a password or a key" in words
    assert "OPENAI_API_KEY" in words
    assert "rounds" in words
    assert words.count("\n") == 5, "what else is wrong on that line is shown with it"
    assert SECRET not in words


def test_a_secret_is_hidden_in_a_line_that_is_wrong_in_another_way(tmp_path):
    words = told(tmp_path, f"{{base_ur: 'https://user:{SECRET}@host', model: [}}")
    assert SECRET not in words
    assert "https://***********@host" in words


def test_what_is_no_address_is_told_what_one_looks_like(tmp_path):
    assert "is no address of a server: https://HOST" in told(tmp_path, "{base_url: localhost}")


@pytest.mark.parametrize(
    "address", ["http://localhost:8000/v1", "https://host/a?api-version=2024-06-01", "http://[::1]"]
)
def test_an_address_without_one_is_taken_as_it_stands(tmp_path, address):
    agents = f"version: 1\nagents: {{base_url: '{address}'}}"
    spec = specs.write(tmp_path, specs.SPEC.replace("version: 1", agents))
    assert agent_settings(load_experiment(spec, SECTIONS)).base_url == address
    assert hidden(address) == address


@pytest.mark.parametrize("name", ["auto", "none", "replay", "mailbox:/box"])
@pytest.mark.parametrize("role", ["planner", "generator", "fallbacks"])
def test_what_serves_all_roles_takes_none_alone(tmp_path, role, name):
    words = told(tmp_path, f"{{model: gpt-4o, {role}: '{name}'}}")
    assert f"'{name}' serves all roles: write it as model, and leave this out" in words
    assert "spec.yaml:2:" in words


def test_the_schema_for_editors_knows_what_an_address_looks_like():
    assert "https?://" in json.dumps(
        json_schema(SECTIONS)["$defs"]["AgentSettings"]["properties"]["base_url"]
    )


def test_settings_are_read_back_from_the_copy_of_a_run(tmp_path):
    agents = "{model: openai/gpt-4o, fallbacks: openai/gpt-4o-mini, rounds: 3}"
    spec = specs.write(tmp_path, specs.SPEC.replace("version: 1", f"version: 1\nagents: {agents}"))
    experiment = load_resolved(dump_resolved(load_experiment(spec, SECTIONS)))
    assert agent_settings(experiment) == AgentSettings(
        model="openai/gpt-4o", fallbacks=("openai/gpt-4o-mini",), rounds=3
    )
    assert agent_settings(load_experiment(specs.write(tmp_path, specs.SPEC), SECTIONS)) is None


@pytest.mark.parametrize(
    ("agents", "place", "words"),
    [
        ("{round: 3}", "spec.yaml:2:10", "unknown key 'round'; did you mean 'rounds'?"),
        ("{rounds: 0}", "spec.yaml:2:18", "greater than or equal to 1"),
        ("{mode: whole}", "spec.yaml:2:16", "'template' or 'direct'"),
        ("5", "spec.yaml:2:9", "should be a mapping, not 5"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path, agents, place, words):
    said = told(tmp_path, agents)
    assert place in said
    assert words in said
