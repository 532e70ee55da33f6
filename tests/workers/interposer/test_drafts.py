"""From a running application to a draft spec that loads, with the stand-in driver."""

from pathlib import Path

import numpy as np

from cluster.commands.applications import capture
from tests.cluster.test_captures import draft
from tuner.experiment.load import load_experiment

SOURCE = "__global__ void silu(const float* in, float* out, int n) { out[0] = in[0]; }\n"


def test_a_captured_application_is_drafted(rig, monkeypatch):
    taken = Path("taken")
    capture(rig.app("eager", "graph"), kernel="silu", output=taken, max_mib=64, max_shapes=8)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    Path("silu.cu").write_text(SOURCE)
    draft(taken, Path("silu.cu"))
    experiment = load_experiment(taken / "spec.yaml")
    assert [a.name for a in experiment.arguments] == ["in_", "out", "n"]
    assert [a.kind for a in experiment.arguments] == ["in", "out", "scalar"]
    assert experiment.kernel.binary.symbols == {"silu": "_Z4siluPKfPfi"}
    assert len(experiment.shapes.tune) > 1
    for shape in experiment.shapes.tune:
        n = shape.symbols["n"]
        result = np.load(f"taken/data/after/out-{shape}.npy")
        values = np.load(experiment.arguments[0].values.at(shape.symbols).file)
        x = values[:n].astype(np.float64)
        assert np.allclose(result[:n], x / (1 + np.exp(-x)), rtol=1e-5)
