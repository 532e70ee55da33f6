"""Where specs are found, and where runs are kept."""

from pathlib import Path

import pytest

from cluster.commands.experiments import BUNDLED, bundled_names, find_spec
from cluster.commands.runs import _run_directory
from cluster.commands.specs import validate
from cluster.settings import Settings
from tests.cluster.kernels import write_experiment
from tuner.errors import SpecError

JOB = Settings(ray_address="127.0.0.1:6379", in_job=True)


def test_a_bundled_name_means_cuda_where_there_is_a_gpu():
    assert "silu_and_mul" in bundled_names()
    assert find_spec("silu_and_mul", lambda: True) == BUNDLED / "silu_and_mul" / "cuda.yaml"
    assert find_spec("silu_and_mul", lambda: False) == BUNDLED / "silu_and_mul" / "opencl.yaml"


def test_a_bundled_name_means_cuda_where_a_target_is_named(capsys):
    validate("silu_and_mul", target="sm_90", compile_corners=False, device=None, as_json=False)
    assert "space on NVIDIA H100" in capsys.readouterr().out


@pytest.mark.parametrize(
    "agents", ["{model: nosuch/model}", "{planner: nosuch/model, model: gpt-4o}"]
)
def test_a_model_that_nobody_knows_is_told_before_a_run(tmp_path, agents):
    spec = write_experiment(tmp_path)
    spec.write_text(f"{spec.read_text()}\nagents: {agents}\n")
    with pytest.raises(SpecError, match="'nosuch/model' is no model that LiteLLM knows"):
        validate(str(spec), target=None, compile_corners=False, device=None, as_json=False)


def test_a_file_wins_over_a_bundled_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("silu_and_mul").write_text("version: 1")
    assert find_spec("silu_and_mul", lambda: True) == Path("silu_and_mul")


def test_a_folder_is_no_spec(tmp_path):
    with pytest.raises(SpecError, match="is a folder"):
        find_spec(str(tmp_path), lambda: False)


@pytest.mark.parametrize("wanted", [Path("runs/mine"), Path.cwd() / "mine"])
def test_a_job_does_not_keep_its_run_in_the_folder_that_vanishes(wanted):
    with pytest.raises(SpecError, match="Ray deletes when the job ends; give an absolute path"):
        _run_directory(wanted, "scale", JOB)


def test_a_job_keeps_its_run_in_the_home_folder_or_where_it_was_told(tmp_path):
    assert _run_directory(None, "scale", JOB).parent == Path.home() / "kernelwright-runs"
    assert _run_directory(tmp_path / "mine", "scale", JOB) == tmp_path / "mine"
