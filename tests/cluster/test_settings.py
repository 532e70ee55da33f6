import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.settings import (
    Settings,
    child_environment,
    environment_for_ray,
    environment_kept,
    read_keys,
    take_keys,
    use_one_algebra_thread,
)
from tuner.errors import EnvironmentProblem

ROOT = Path(__file__).parents[2]


def test_keys_leave_the_environment_and_rays_token_stays():
    environ = {
        "OPENAI_API_KEY": "k",
        "HF_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "RAY_AUTH_TOKEN": "r",
        "KEYBOARD": "de",
        "PATH": "/bin",
        "AZURE_API_BASE": "https://here",
        "AWS_REGION_NAME": "us-east-2",
    }
    taken = take_keys(environ)
    settings = {"AZURE_API_BASE": "https://here", "AWS_REGION_NAME": "us-east-2"}
    secrets = {"OPENAI_API_KEY": "k", "HF_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "s"}
    assert taken == secrets | settings
    assert environ == {"RAY_AUTH_TOKEN": "r", "KEYBOARD": "de", "PATH": "/bin"} | settings


def test_a_ray_started_here_gets_a_token_that_others_cannot_read():
    environ = {"SOME_API_KEY": "k"}
    with environment_for_ray(Settings(ray_address=None, in_job=False), environ) as keys:
        assert stat.S_IMODE(keys.stat().st_mode) == 0o600
        assert read_keys(keys) == {"SOME_API_KEY": "k"}
        token = Path(environ["RAY_AUTH_TOKEN_PATH"])
        assert environ["RAY_AUTH_MODE"] == "token"
        assert "SOME_API_KEY" not in environ
        assert len(token.read_text()) == 64
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        before = token.read_text()
    assert not token.exists()
    again: dict[str, str] = {}
    with environment_for_ray(Settings(ray_address=None, in_job=False), again):
        # Ray reads it once in a process, though a program may tune twice.
        assert Path(again["RAY_AUTH_TOKEN_PATH"]).read_text() == before
    with pytest.raises(EnvironmentProblem, match="resume the run with the keys"):
        read_keys(keys)


def test_files_with_keys_that_a_killed_process_left_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(ray_address=None, in_job=False)
    with environment_for_ray(settings, {}) as living:
        left = living.parent.with_name("keys-left.scratch")
        left.mkdir()
        (left / "keys.json").touch()
        linked = living.parent.with_name("keys-linked.scratch")
        linked.symlink_to(tmp_path)
        with environment_for_ray(settings, {}):
            assert not left.exists()
            assert living.exists()
    assert list(living.parents[1].glob("*.scratch")) == [linked]


def test_a_choice_of_the_users_stands():
    users = {"RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS_SKIP_REGEX": "x"}
    chosen = dict(users)
    with environment_for_ray(Settings(ray_address=None, in_job=False), chosen):
        assert chosen == users
    joined: dict[str, str] = {}
    with environment_for_ray(Settings(ray_address="auto", in_job=False), joined):
        assert not any(name.startswith("RAY_AUTH") for name in joined)


def test_a_submitted_job_is_recognised():
    environ = {"RAY_ADDRESS": "127.0.0.1:6379", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}
    home = Path.home() / ".kernelwright"
    assert Settings.read(environ) == Settings(ray_address="127.0.0.1:6379", in_job=True, home=home)
    nothing = {"RAY_ADDRESS": "", "KERNELWRIGHT_HOME": ""}
    assert Settings.read(nothing) == Settings(ray_address=None, in_job=False, home=None)


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, ""),
        ({"SLURM_JOB_ID": "17"}, "Slurm job 17"),
        (
            {"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"metadata": {"job_submission_id": "raysubmit_x"}}'},
            "Ray job raysubmit_x",
        ),
        ({"RAY_JOB_CONFIG_JSON_ENV_VAR": "[]", "SLURM_JOB_ID": "17"}, "Slurm job 17"),
    ],
)
def test_the_batch_job_has_a_name(environ, job):
    assert Settings.read(environ).job == job


def test_a_command_in_a_child_process_has_the_keys_and_the_ray_of_this_one(monkeypatch):
    before = child_environment({"OPENAI_API_KEY": "sk-1", "PATH": "/bin"})
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/a/token")
    found = child_environment(before, "10.0.0.1:6379")
    assert before == {"OPENAI_API_KEY": "sk-1", "PATH": "/bin"}
    assert {"OPENAI_API_KEY", "PATH", "RAY_AUTH_TOKEN_PATH"} <= found.keys()
    assert found["RAY_ADDRESS"] == "10.0.0.1:6379"


def test_linear_algebra_gets_one_thread_unless_the_user_chose():
    environ = {}
    use_one_algebra_thread(environ)
    assert environ == {"OPENBLAS_NUM_THREADS": "1"}
    chosen = {"OMP_NUM_THREADS": "4"}
    use_one_algebra_thread(chosen)
    assert chosen == {"OMP_NUM_THREADS": "4"}


def test_compiled_binaries_are_kept_at_home_unless_that_is_off():
    assert Settings.read({"KERNELWRIGHT_HOME": "/somewhere"}).cache == Path("/somewhere/compiled")
    assert Settings.read({"KERNELWRIGHT_HOME": ""}).cache is None


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    def unknown(_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(unknown))
    assert Settings.read({}) == Settings(ray_address=None, in_job=False, home=None)


def test_keys_leave_what_the_kernel_shows_of_this_process():
    code = (
        "import ctypes\n"
        "from cluster.settings import take_keys\n"
        "taken, libc = take_keys(), ctypes.CDLL(None)\n"
        "print(len(taken['OPENAI_API_KEY']), libc.prctl(3, 0, 0, 0, 0))\n"
        "libc.prctl(4, 1, 0, 0, 0)  # dumpable again, to read its own\n"
        "print(open('/proc/self/environ').read())"
    )
    environment = {"OPENAI_API_KEY": "sk-erase-me", "PATH": os.defpath, "PYTHONPATH": str(ROOT)}
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert shown.startswith("11 0\n")
    assert "OPENAI_API_KEY=\0" in shown
    assert "erase" not in shown


def test_a_program_has_its_environment_again_after_a_run():
    environ = {"OPENAI_API_KEY": "key", "PATH": "/bin"}
    with environment_kept(environ):
        take_keys(environ)
        environ |= {"RAY_AUTH_MODE": "token", "PATH": "/other"}
    assert environ == {"OPENAI_API_KEY": "key", "PATH": "/bin"}


def test_a_second_run_in_a_program_is_refused_until_the_first_has_ended():
    environ = {"OPENAI_API_KEY": "key"}
    with environment_kept(environ):
        take_keys(environ)
        with (
            pytest.raises(EnvironmentProblem, match=r"another tune\(\) of this program"),
            environment_kept(environ),
        ):
            pass
    assert environ == {"OPENAI_API_KEY": "key"}
    with environment_kept(environ):
        take_keys(environ)
    assert environ == {"OPENAI_API_KEY": "key"}
