"""Tuned kernels in place of an application's own, in real processes with the stand-in driver."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.experiment.fields import Source
from tuner.experiment.model import (
    Argument,
    Experiment,
    Kernel,
    Launch,
    ShapeBinding,
    Shapes,
    Template,
    Tolerance,
)
from tuner.export.bundle import Export
from tuner.export.substitution import substitution_rules
from tuner.expressions import Expression
from workers.interposer.application import InterposerSettings, run_application
from workers.interposer.injection import injected_kernels
from workers.interposer.rules import TunedImage, rules_text
from workers.interposer.trace import read_traces

SILU = "_Z4siluPKfPfi"
ALL = ("eager", "packed", "graph", "recorded")
parse = Expression.parse


def experiment(*, align=4, domain=("1 <= n",)):
    return Experiment(
        version=1,
        name="silu",
        kernel=Kernel(
            language="cuda",
            source=Source(name="silu.cu", text="// as it was\n"),
            entry="silu",
            launch=Launch(grid=(parse("ceil_div(n, 256)"),), block=(parse(256),)),
        ),
        arguments=(
            Argument(name="x", kind="in", dtype="float32", shape=(parse("n"),), align=align),
            Argument(
                name="out",
                kind="out",
                dtype="float32",
                shape=(parse("n"),),
                tolerance=Tolerance(rtol=1e-5, atol=1e-6),
            ),
            Argument(name="n", kind="scalar", dtype="int32", value=parse("n")),
        ),
        shapes=Shapes(
            domain=tuple(map(parse, domain)),
            tune=tuple(ShapeBinding({"n": n}) for n in (1000, 4096, 50000)),
        ),
        template=Template(
            source=Source(name="family.cu", text="// the family\n"),
            entry="silu_tuned",
            parameters={"BLOCK": (64, 128)},
            launch=Launch(grid=(parse("ceil_div(n, 4 * BLOCK)"),), block=(parse("BLOCK"),)),
        ),
    )


def rules_of(given, times=(50.0, 50.0, 50.0), **changed):
    """The rules of a finished run: 100 ns for the baseline on each shape, ``times`` for a trial.

    ``changed`` replaces fields of the tuned launch.
    """
    history = finished_run(given, cuda_device(90), [100.0] * 3, [({"BLOCK": 64}, times)])
    rules, notes = substitution_rules(Export.of(history))
    assert not notes
    return [
        replace(rule, variants=tuple(replace(one, **changed) for one in rule.variants))
        for rule in rules
    ]


@pytest.fixture
def injected(rig, tmp_path, capfd):
    """Runs the application with rules: what it printed, and what became of silu's launches."""

    def run(rules, *scenarios, entry="silu_tuned", mode="inject"):
        folder = tmp_path / "recorded"
        folder.mkdir()
        images = [[TunedImage(rig.kernels, entry)] * len(rule.variants) for rule in rules]
        text = rules_text([(r, SILU, i) for r, i in zip(rules, images, strict=True)])
        (tmp_path / "rules").write_text(text)
        capfd.readouterr()
        settings = InterposerSettings(mode=mode, rules=tmp_path / "rules")
        ended = run_application(rig.app(*scenarios), settings, folder)
        assert ended.exit_code == 0
        traces = read_traces(folder)
        notes = [note.note for trace in traces for note in trace.notes]
        kernels = injected_kernels(traces, verified=mode == "verify")
        return capfd.readouterr().out, kernels[0] if kernels else None, notes

    return run


def plain(rig, *scenarios):
    return subprocess.run(rig.app(*scenarios), capture_output=True, text=True, check=True).stdout


def test_tuned_kernels_replace_launches_also_those_recorded_into_graphs(rig, injected):
    out, silu, notes = injected(rules_of(experiment()), *ALL)
    assert out == plain(rig, *ALL)
    # 10 eager, 1 with packed arguments, 1 explicit node, 1 recorded from a stream
    assert (silu.substituted, silu.recorded, silu.fell_back) == (13, 2, 0)
    assert not silu.original
    assert not notes


def test_what_replaces_a_launch_is_what_runs(rig, injected):
    for scenarios in (ALL, ("graph",), ("recorded",), ("updated",)):
        out, _, _ = injected(rules_of(experiment()), *scenarios, entry="silu_wrong")
        assert out != plain(rig, *scenarios)
        for path in Path("recorded").iterdir():
            path.unlink()
        Path("recorded").rmdir()


def test_the_original_runs_outside_the_domain_and_the_dispatch_rule(injected):
    _, silu, _ = injected(rules_of(experiment(domain=("n % 8 == 0",))), "eager", "packed")
    assert (silu.substituted, dict(silu.original)) == (10, {"the shape is outside the domain": 1})


def test_the_dispatch_rule_keeps_the_original_where_it_is_faster(injected):
    _, silu, _ = injected(rules_of(experiment(), times=(150.0, 150.0, 30.0)), "eager")
    assert (silu.substituted, dict(silu.original)) == (2, {"the original is the fastest": 8})


@pytest.mark.parametrize(
    ("changed", "entry", "reason"),
    [
        ({"block": ("2048", "1", "1")}, "silu_tuned", "no tuned kernel is feasible"),
        ({"block": ("64", "64", "1")}, "silu_tuned", "its block or its shared memory is too large"),
        ({"grid": ("$0 1000 -", "1", "1")}, "silu_tuned", "no tuned kernel is feasible"),
        ({"grid": ("1 0 //", "1", "1")}, "silu_tuned", "no tuned kernel is feasible"),
        ({"shared_bytes": "300000"}, "silu_tuned", "its block or its shared memory is too large"),
        ({}, "silu_layout", "its parameters are not those of the spec"),
        ({}, "silu_missing", "its image does not hold the kernel"),
    ],
)
def test_a_tuned_kernel_that_cannot_run_leaves_the_original(rig, injected, changed, entry, reason):
    out, silu, notes = injected(rules_of(experiment(), **changed), *ALL[:3], entry=entry)
    assert out == plain(rig, *ALL[:3])
    if "$0" not in str(changed):
        assert silu.substituted == 0
    assert silu.fell_back == 0
    assert any(reason in text for text in (*silu.original, *notes))


def test_a_misaligned_buffer_keeps_the_original(rig, injected):
    out, silu, _ = injected(rules_of(experiment(align=8192)), *ALL)
    assert out == plain(rig, *ALL)
    assert (silu.substituted, silu.fell_back) == (0, 0)


def test_a_launch_that_fails_falls_back(rig, injected):
    refused = ("77777", "1", "1")
    out, silu, _ = injected(rules_of(experiment(), grid=refused), *ALL)
    assert out == plain(rig, *ALL)
    assert silu.substituted == 1  # an explicit node is not launched when it is made
    assert silu.fell_back == 12


def test_verify_compares_every_early_launch_and_keeps_the_originals_results(rig, injected):
    out, silu, _ = injected(rules_of(experiment()), *ALL, mode="verify")
    assert out == plain(rig, *ALL)
    assert (silu.equal, silu.different, silu.unequal) == (18, 0, 0)


def test_verify_catches_a_wrong_kernel_with_the_application_unharmed(rig, injected):
    out, silu, _ = injected(rules_of(experiment()), *ALL, entry="silu_wrong", mode="verify")
    assert out == plain(rig, *ALL)
    assert (silu.equal, silu.different) == (0, 18)
    assert silu.worst == pytest.approx(1.0, abs=0.5)


def test_verify_allows_what_the_tolerance_allows(rig, injected):
    out, silu, _ = injected(rules_of(experiment()), "eager", entry="silu_close", mode="verify")
    assert out == plain(rig, "eager")
    assert (silu.equal, silu.different) == (10, 0)
    assert silu.unequal > 1000


def test_verify_catches_and_repairs_a_write_beyond_the_outputs(rig, injected):
    out, silu, _ = injected(rules_of(experiment()), *ALL, entry="silu_stray", mode="verify")
    assert out == plain(rig, *ALL)
    assert silu.different == 18
    assert {line.outside for line in silu.differences} == {4}


@pytest.mark.parametrize("text", ["", "kernel\n", "kernel k\nuse 1 1\n", "parameters 8\n"])
def test_a_malformed_file_of_rules_leaves_the_application_alone(rig, tmp_path, capfd, text):
    folder = tmp_path / "recorded"
    folder.mkdir()
    (tmp_path / "rules").write_text(text)
    settings = InterposerSettings(mode="inject", rules=tmp_path / "rules")
    run_application(rig.app("eager"), settings, folder)
    assert capfd.readouterr().out == plain(rig, "eager")
    [trace] = read_traces(folder)
    assert "the file of rules cannot be used" in trace.notes[0].note
