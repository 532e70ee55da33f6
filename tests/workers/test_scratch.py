import gc
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import EnvironmentProblem
from workers.scratch import PrivateFolder, runtime_directory


def test_a_place_that_others_may_write_to_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = runtime_directory()
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    with pytest.raises(EnvironmentProblem, match="not a private directory"):
        runtime_directory()


def test_scratch_of_the_dead_is_swept_and_of_the_living_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = (
        "import os\nfrom workers.scratch import PrivateFolder\n"
        "folder = PrivateFolder('test')\nprint(folder.path, flush=True)\nos._exit(9)\n"
    )
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    living = PrivateFolder("test")
    dead = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    ).stdout.strip()
    assert Path(dead).is_dir()
    third = PrivateFolder("test")
    assert not Path(dead).exists()
    assert living.path.is_dir()
    for folder in (living, third):
        folder.remove()
        folder.remove()
        assert not folder.path.exists()


def test_a_scratch_folder_goes_with_whoever_forgets_it() -> None:
    path = PrivateFolder("test").path
    gc.collect()
    assert not path.exists()
