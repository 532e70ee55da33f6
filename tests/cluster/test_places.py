"""Where specs are found, and where runs are kept."""

import re
from pathlib import Path

import pytest

from agents.llm.mailbox import check_mailbox
from agents.settings import SECTIONS, AgentSettings
from cluster.commands.find_spec import BUNDLED, bundled_names, find_spec
from cluster.commands.validate import validate
from cluster.runs.model_choice import ModelAccess, check_endpoint, check_models, open_model
from cluster.settings import Settings
from tests.cluster.kernels import SPEC, kernelwright, write_experiment
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.problems import SpecProblems


def plainly_validate(spec):
    validate(str(spec), target=None, fast=True, device=None, as_json=False)


JOB = Settings(ray_address="127.0.0.1:6379", in_job=True)


def test_a_bundled_name_means_cuda_where_there_is_a_gpu():
    assert "silu_and_mul" in bundled_names()
    assert find_spec("silu_and_mul", lambda: True) == BUNDLED / "silu_and_mul" / "cuda.yaml"
    shipped = BUNDLED / "silu_and_mul" / "cuda_shipped.yaml"
    assert find_spec("silu_and_mul/cuda_shipped", lambda: False) == shipped
    assert find_spec("silu_and_mul", lambda: False) == BUNDLED / "silu_and_mul" / "opencl.yaml"


def test_a_bundled_name_means_cuda_where_a_target_is_named(capsys):
    validate("silu_and_mul", target="sm_90", fast=True, device=None, as_json=False)
    assert "space on NVIDIA H100" in capsys.readouterr().out


def asks(folder, agents, **changed):
    """A spec with such a line of agents, its 21st."""
    spec = write_experiment(folder, **changed)
    spec.write_text(f"{spec.read_text()}\nagents: {agents}\n")
    return spec


@pytest.mark.parametrize(
    ("agents", "columns"),
    [
        ("{model: nosuch/model}", [17]),
        ("{planner: nosuch/model, model: gpt-4o}", [19]),
        ("{model: gpt-4o, fallbacks: [gpt-4o, nosuch/model]}", [45]),
        ("{model: nosuch/model, generator: nosuch/model}", [17, 42]),
    ],
)
def test_a_model_that_nobody_knows_is_told_before_a_run_with_its_place(tmp_path, agents, columns):
    spec = asks(tmp_path, agents)
    with pytest.raises(SpecProblems) as told:
        plainly_validate(spec)
    words = "LiteLLM does not know the model 'nosuch/model'"
    assert re.findall(rf"^{spec}:22:(\d+): {words}", str(told.value), re.MULTILINE) == [
        str(column) for column in columns
    ]


@pytest.mark.parametrize("command", ["validate", "run"])
def test_who_cannot_be_asked_is_told_before_there_is_a_run(tmp_path, command):
    (tmp_path / "file").write_text("")
    options = ("--fleet", "local", "--run-dir", tmp_path / "run") if command == "run" else ()
    for number, (model, code, words) in enumerate(
        (
            ("nosuch/model", 2, "does not know the model 'nosuch/model'"),
            ("'mailbox:'", 2, "a mailbox needs a folder"),
            (f"'mailbox:{tmp_path}/file/box'", 3, f"({tmp_path}/file is not a folder)"),
        )
    ):
        spec = asks(tmp_path / str(number), f"{{model: {model}}}")
        result = kernelwright(command, spec, *options)
        assert result.returncode == code, result.stderr
        assert f"{spec}:22:17: " in result.stderr
        assert words in result.stderr
        assert not (tmp_path / "run").exists()


def test_a_model_of_the_command_line_is_told_of_there(tmp_path):
    experiment = load_experiment(write_experiment(tmp_path))
    with pytest.raises(SpecProblems, match=r"^--model: LiteLLM does not know the model 'nosuch/x'"):
        check_models(tmp_path / "spec.yaml", experiment, "nosuch/x", "nosuch/x")


SERVED = "https://models.example:8443/v1"


@pytest.mark.parametrize("allowed", [(), ("example",), ("evil.example",), ("models.example:443",)])
def test_no_server_that_a_spec_names_gets_keys_unless_the_user_allows_it(tmp_path, allowed):
    spec = asks(tmp_path, f"{{base_url: '{SERVED}'}}")
    experiment = load_experiment(spec, SECTIONS)
    says = "would go to models.example:8443: .* add --allow-endpoint models.example:8443"
    with pytest.raises(SpecProblems, match=says) as found:
        check_endpoint(spec, experiment, "openai/x", allowed)
    assert str(found.value).startswith(f"{spec}:22:")
    with pytest.raises(SpecError, match=says):
        opened(tmp_path, allowed)


@pytest.mark.parametrize("allowed", [("models.example",), ("Models.Example:8443", "other.example")])
def test_a_server_that_the_user_allows_is_used(tmp_path, allowed):
    spec = asks(tmp_path, f"{{base_url: '{SERVED}'}}")
    check_endpoint(spec, load_experiment(spec, SECTIONS), "openai/x", allowed)
    assert opened(tmp_path, allowed)


def test_a_model_that_is_asked_no_server_needs_no_leave(tmp_path):
    spec = asks(tmp_path, f"{{base_url: '{SERVED}'}}")
    for model in ("replay", "none", "mailbox:/box"):
        check_endpoint(spec, load_experiment(spec, SECTIONS), model, ())


def test_a_model_id_names_no_server(tmp_path):
    spec = asks(tmp_path, "{fallbacks: [huggingface/https://models.example]}")
    with pytest.raises(SpecProblems, match=r"names a server: write that as agents\.base_url"):
        check_models(spec, load_experiment(spec, SECTIONS), "openai/gpt-4o-mini", None)


def opened(run, endpoints):
    settings = AgentSettings(model="openai/x", base_url=SERVED)
    keys = {"OPENAI_API_KEY": "sk-of-the-user"}
    return open_model(run, settings, ModelAccess(keys=keys, endpoints=endpoints), print)


def test_a_mailbox_is_looked_at_and_not_made(tmp_path):
    check_mailbox(tmp_path / "deep" / "box")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "replies").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for box in (tmp_path / "box", tmp_path / ("y" * 300), tmp_path / "loop"):
        with pytest.raises(EnvironmentProblem, match="cannot be created"):
            check_mailbox(box)


def test_a_mailbox_that_is_gone_since_the_run_began_is_not_made_again(tmp_path):
    box, agents = tmp_path / "box", AgentSettings(model=f"mailbox:{tmp_path / 'box'}")
    access = ModelAccess(exit_when_waiting=True)
    open_model(tmp_path, agents, access, print)
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm" / "baseline.json").write_text("{}")
    box.rename(tmp_path / "moved")
    with pytest.raises(EnvironmentProblem, match="box is gone: make the folder again, or a link"):
        open_model(tmp_path, agents, access, print)
    box.symlink_to("moved")
    open_model(tmp_path, agents, access, print)


def test_before_a_model_writes_a_template_its_space_is_not_known(tmp_path, capsys):
    spec = SPEC.replace("template: template.yaml\n", "")
    plainly_validate(asks(tmp_path / "own", f"{{model: 'mailbox:{tmp_path}/box'}}", spec=spec))
    told, noted = capsys.readouterr()
    assert f"space of a run: unknown until mailbox:{tmp_path}/box writes a template\n" in told
    assert "estimated run: at most 6 configurations, " in told
    assert "feasible" not in told
    assert noted == "", "no template is made by rules"
    plainly_validate(asks(tmp_path / "given", f"{{model: 'mailbox:{tmp_path}/box'}}"))
    told = capsys.readouterr().out
    assert "6 of 6 configurations are feasible" in told
    assert "writes a template; --model none searches the spec's own\n" in told
    assert "estimated run: at most 6 configurations" in told
    plainly_validate(asks(tmp_path / "none", "{model: none}", spec=spec))
    assert "at most" not in capsys.readouterr().out


def test_a_file_wins_over_a_bundled_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("silu_and_mul").write_text("version: 1")
    assert find_spec("silu_and_mul", lambda: True) == Path("silu_and_mul")


def test_a_link_means_the_spec_beside_its_sources(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "spec.yaml").write_text("version: 1")
    (tmp_path / "link.yaml").symlink_to("mine/spec.yaml")
    found = find_spec(str(tmp_path / "link.yaml"), lambda: True)
    assert found == (tmp_path / "mine" / "spec.yaml").resolve()


def test_a_folder_is_no_spec(tmp_path):
    with pytest.raises(SpecError, match="is a folder"):
        find_spec(str(tmp_path), lambda: False)


@pytest.mark.parametrize("name", ["conv1d.cl", "conv1d.cu", "conv1d.cuh"])
def test_a_kernel_is_no_spec_but_has_one_made(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("")
    with pytest.raises(SpecError) as refused:
        find_spec(name, lambda: False)
    assert str(refused.value) == f"{name} is a kernel, not a spec: kernelwright init {name}"


@pytest.mark.parametrize("wanted", [Path("runs/mine"), Path.cwd() / "mine"])
def test_a_job_does_not_keep_its_run_in_the_folder_that_vanishes(wanted):
    with pytest.raises(SpecError, match="Ray deletes when the job ends: give an absolute path"):
        JOB.lasting(wanted, Path("runs/scale"), "--run-dir")


def test_a_job_keeps_its_run_in_the_home_folder_or_where_it_was_told(tmp_path):
    assert JOB.lasting(None, Path("runs/scale"), "").parent == Path.home() / "kernelwright-runs"
    assert JOB.lasting(tmp_path / "mine", Path("runs/scale"), "") == tmp_path / "mine"
