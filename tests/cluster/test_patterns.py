"""Patterns on the command line: a run tries what an earlier one left, and says so."""

import json
import os
from contextlib import closing
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from agents.patterns.features import features_of
from agents.patterns.pattern import Pattern, Winner
from agents.patterns.store import PatternStore
from cluster.commands import patterns
from cluster.runs.search_run import PATTERNS_FILE
from tests.cluster.kernels import kernelwright, write_experiment
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView


def kernelwright_at(home, *arguments):
    with patch.dict(os.environ, KERNELWRIGHT_HOME=str(home)):
        return kernelwright(*arguments)


def test_what_won_before_is_tried_first(tmp_path):
    spec = write_experiment(tmp_path / "spec")
    winner = Winner(
        device="another", values={"ITEMS": 4, "BLOCK": 64}, speedup=2.0, low=1.9, high=2.1
    )
    features = features_of(load_experiment(spec))
    left = Pattern(
        kernel="a" * 16, experiment="gelu", features=features, strategy="", winners=(winner,)
    )
    PatternStore(tmp_path / "home" / "patterns").add(left)
    (tmp_path / "home" / "patterns" / "bad.json").write_text("?")
    run = tmp_path / "run"
    options = ("--patterns", "--trials", 1, "--fleet", "local", "--run-dir", run)
    result = kernelwright_at(tmp_path / "home", "run", spec, *options)
    assert result.returncode == 0, result.stderr
    assert f"tried first: gelu ({left.name})" in result.stderr
    assert "bad.json: is not a pattern" in result.stderr
    first = next(fact for fact in RunView.open(run).facts() if fact.kind == "trial.proposed")
    assert first.configuration.as_dict() == {"ITEMS": 4, "BLOCK": 64}
    assert json.loads((run / "patterns.json").read_text())[0]["kernel"] == "a" * 16


def test_list_show_export_and_delete(tmp_path):
    store = PatternStore(tmp_path / "patterns")
    winner = Winner(device="d", values={"VEC": 4}, speedup=2.0, low=1.9, high=2.1)
    spec = write_experiment(tmp_path / "spec")
    features = features_of(load_experiment(spec))
    left = Pattern(
        kernel="a" * 16, experiment="gelu", features=features, strategy="", winners=(winner,)
    )
    store.add(left)
    listed = kernelwright_at(tmp_path, "patterns", "list")
    assert listed.stdout == f"{left.name}  gelu  2.00x [1.90, 2.10]  d: VEC=4\n"
    assert json.loads(kernelwright_at(tmp_path, "patterns", "show", left.name[:5]).stdout)
    assert len(json.loads(kernelwright_at(tmp_path, "patterns", "export").stdout)) == 1
    assert kernelwright_at(tmp_path, "patterns", "delete", left.name).returncode == 0
    assert kernelwright_at(tmp_path, "patterns", "show", left.name).returncode == 2
    assert kernelwright_at("", "patterns", "list").returncode == 3


def test_a_store_that_cannot_be_written_costs_a_note_and_not_the_result(
    tmp_path, monkeypatch, capsys
):
    spec = load_experiment(write_experiment(tmp_path / "spec"))
    with closing(RunDirectory.create(tmp_path / "run", spec, "")) as directory:
        directory.write(PATTERNS_FILE, "[]")
    winner = Winner(device="d", values={"VEC": 4}, speedup=2.0, low=1.9, high=2.1)
    left = Pattern(kernel="a" * 16, features=features_of(spec), strategy="", winners=(winner,))
    monkeypatch.setattr(patterns, "left_by", lambda *_: left)
    monkeypatch.setenv("KERNELWRIGHT_HOME", "/dev/null/home")
    history = SimpleNamespace(finished=True, experiment=spec)
    patterns.leave(tmp_path / "run", history, None)
    assert "cannot keep the winner as a pattern: /dev/null/home/patterns" in capsys.readouterr().err


def test_a_run_without_patterns_leaves_none(tmp_path, monkeypatch):
    spec = load_experiment(write_experiment(tmp_path / "spec"))
    RunDirectory.create(tmp_path / "run", spec, "").close()
    monkeypatch.setattr(patterns, "left_by", lambda *_: pytest.fail("it uses no patterns"))
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    patterns.leave(tmp_path / "run", SimpleNamespace(finished=True), None)
    assert not (tmp_path / "home").exists()
