"""``init --capture`` on a machine without a GPU: a draft with what changed, and its arrays."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from cluster.commands.captures import draft_capture
from cluster.commands.init import init
from tests.workers.backends.fatbins import fatbin
from tests.workers.interposer.recordings import captured_launch, write_recording
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import load_experiment
from tuner.files import unpacked
from workers.backends.cuda.image import read_image
from workers.interposer.recording import read_recording

SOURCE = """#include <torch/extension.h>
__global__ void scale(float* out, const float* x, int n) { out[threadIdx.x] = x[threadIdx.x]; }
"""


@pytest.fixture(autouse=True)
def no_device(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def captured(tmp_path):
    folder = tmp_path / "captures" / "scale"
    launches = []
    for n, count in ((100, 3), (300, 5)):
        x = np.arange(n, dtype=np.float32) + 1
        out = (np.zeros(n, np.float32).tobytes(), (2 * x).tobytes())
        grid = (-(-n // 64), 1, 1)
        held = (x.tobytes(), x.tobytes())
        raw = [out, held, np.int32(n).tobytes()]
        launches.append(captured_launch(folder, raw, grid=grid, eager=count))
    write_recording(folder, launches, name="_Z5scalePfPKfi")
    (tmp_path / "scale.cu").write_text(SOURCE)
    return folder


def draft(folder, source=None, **more):
    given = {"entry": None, "output": None, "commands": None, "include": [], "device": None}
    draft_capture(folder, source, **given | more)


def test_a_draft_lies_in_the_capture_and_loads(captured, tmp_path, capsys):
    draft(captured, tmp_path / "scale.cu")
    told = capsys.readouterr().err
    assert "not replayed" in told
    assert f"wrote {captured / 'spec.yaml'}" in told
    experiment = load_experiment(captured / "spec.yaml")
    assert experiment.kernel.source.text == SOURCE
    assert experiment.kernel.binary.file.name in {p.name for p in (captured / "images").iterdir()}
    assert [(a.name, a.kind) for a in experiment.arguments] == [
        ("out", "out"), ("x", "in"), ("n", "scalar")
    ]  # fmt: skip
    assert [shape.weight for shape in experiment.shapes.tune] == [5, 3]
    held = np.load(captured / "data" / "x-300.npy")
    assert held.tolist() == list(range(1, 301))
    result = np.load(captured / "data" / "after" / "out-n=300.npy")
    assert result.tolist() == list(range(2, 602, 2))
    for path in (captured / "data").rglob("*.npy"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(SpecError, match="exists already"):
        draft(captured, tmp_path / "scale.cu")


def test_another_place_and_no_source(captured, tmp_path, capsys):
    spec = tmp_path / "mine.yaml"
    draft(captured, output=spec, entry="scale")
    assert "give the kernel's source" in capsys.readouterr().err
    text = spec.read_text()
    assert "SOURCE.cu" in text
    assert 'file: "captures/scale/images/' in text


def test_a_large_image_is_narrowed_to_the_device(captured, tmp_path):
    recording = read_recording(captured)
    held = fatbin((2, 80, os.urandom(1 << 20)), (2, 90, os.urandom(1 << 10)))
    write_recording(captured, recording.launches, name="_Z5scalePfPKfi", image=held, kind="fatbin")
    draft(captured, tmp_path / "scale.cu")
    binary = load_experiment(captured / "spec.yaml").kernel.binary.file
    assert binary.name.endswith("-90")
    assert read_image(unpacked(binary.data, 1 << 20)).cubins == (90,)


def test_what_cannot_be_used_is_named(captured, tmp_path):
    with pytest.raises(SpecError, match="did you mean 'scale'"):
        draft(captured, entry="scael")
    with pytest.raises(SpecError, match="no such file"):
        draft(tmp_path / "absent")
    with pytest.raises(SpecError, match=r"no such file: absent\.cu"):
        draft(captured, Path("absent.cu"))
    with pytest.raises(EnvironmentProblem, match="no cuda device"):
        draft(captured, device="H100")
    assert not (captured / "spec.yaml").exists()
    nothing = {"entry": None, "output": None, "schema": False, "capture": None, "commands": None}
    with pytest.raises(SpecError, match="go with --capture"):
        init(Path("scale.cu"), **nothing, include=[Path()], device=None)


def test_arrays_are_not_written_through_a_link(captured, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (captured / "data").symlink_to(outside)
    with pytest.raises(SpecError, match="data: is a link"):
        draft(captured)
    assert not list(outside.iterdir())


def test_a_kernel_of_scalars_alone_is_drafted(tmp_path):
    write_recording(tmp_path, [captured_launch(tmp_path, [np.int32(7).tobytes()])], name="spin")
    draft(tmp_path)
    text = (tmp_path / "spec.yaml").read_text()
    assert "{name: p0, kind: scalar, dtype: int32, value: p0}" in text
