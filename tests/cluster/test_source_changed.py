"""A run directory of other sources, or of a running process, is refused with the reason."""

import os
from contextlib import closing

import pytest

from cluster.commands.runs import resume, run
from tests.cluster.kernels import SPEC, write_experiment
from tests.tuner.space.devices import opencl_cpu
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.experiment.load import load_experiment
from tuner.journal.facts import BaselinePrepared, Entry, EpochOpened, RunFinished, SearchEnded
from tuner.run_directory import RunDirectory
from tuner.trial import Code, Rejected, Stage

FAILED = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="out[0] is 2")
COMMON = {"fleet": "local", "device": None, "target": None, "allow_endpoint": None}
COMMON |= {"gpus": None, "max_gpus": None, "wait": False, "keep_gpus": False, "node_label": None}
COMMON |= {"exit_when_waiting": False, "as_json": False}
OPTIONS = {"trials": None, "seconds": None, "model": "none", "use_patterns": False}


def failed_run(spec, path):
    """A run that ended since its baseline is wrong."""
    experiment = load_experiment(spec)
    made = RunDirectory.create(path, experiment, "", origin=str(spec))
    with closing(made), made.journal() as journal:
        for fact in (
            EpochOpened(device=opencl_cpu(), environment="one"),
            BaselinePrepared(result=FAILED),
            SearchEnded(reason="baseline"),
            RunFinished(),
        ):
            journal.append(Entry(fact))
    return path


def test_a_resume_says_that_the_kernel_was_changed_and_a_run_does_not_point_at_it(tmp_path, capsys):
    spec = write_experiment(tmp_path / "x")
    folder = failed_run(spec, tmp_path / "run")
    with pytest.raises(NothingValid):
        resume(folder, seconds=None, **COMMON)
    assert "changed" not in capsys.readouterr().err
    kernel = spec.parent / "scale.cl"
    kernel.write_text(kernel.read_text().replace("3.0f", "(3.0f)"))
    with pytest.raises(NothingValid):
        resume(folder, seconds=None, **COMMON)
    assert "has changed since this run began" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(EnvironmentProblem, match="was changed: name another folder"):
        run(str(spec), run_dir=folder, **OPTIONS, **COMMON)


def test_a_folder_of_another_spec_names_that_spec(tmp_path):
    other = write_experiment(tmp_path / "other")
    folder = failed_run(other, tmp_path / "run")
    mine = write_experiment(tmp_path / "mine", spec=SPEC.replace("n: 777", "n: 778"))
    with pytest.raises(EnvironmentProblem) as refused:
        run(str(mine), run_dir=folder, **OPTIONS, **COMMON)
    assert str(refused.value) == (
        f"{folder} is a run of {other}, not of {mine}: name another folder with --run-dir"
    )


@pytest.mark.parametrize("held_out", ["n: 777", "n: 778"])
def test_a_folder_in_use_is_said_to_be_in_use_whichever_spec_it_is_of(tmp_path, held_out):
    held = load_experiment(write_experiment(tmp_path / "held"))
    mine = write_experiment(tmp_path / "mine", spec=SPEC.replace("n: 777", held_out))
    with (
        closing(RunDirectory.create(tmp_path / "run", held, "")),
        pytest.raises(EnvironmentProblem, match=f"is in use by process {os.getpid()} on "),
    ):
        run(str(mine), run_dir=tmp_path / "run", **OPTIONS, **COMMON)
