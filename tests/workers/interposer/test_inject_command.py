"""``inject`` from a run directory: sources compiled by NVRTC, launches in real processes."""

import json
import subprocess
from contextlib import closing
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from cluster.cli.main import app as cli
from cluster.commands.inject import inject
from tests.tuner.results.runs import finished_run
from tests.workers.interposer.test_injection import ALL, SILU, experiment
from tuner.errors import NothingValid, SpecError
from tuner.experiment.fields import Source
from tuner.journal.facts import Entry
from tuner.run_directory import RunDirectory
from workers.backends.cuda.architectures import device_for

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

SOURCE = "__global__ void silu(const float* x, float* out, int n) { out[threadIdx.x] = x[0] * n; }"
FAMILY = 'extern "C" __global__ void NAME(const float* x, float* out, int n) { out[n] = BLOCK; }'


def run_directory(path, entry="silu_tuned", kernel="silu"):
    """A finished run whose tuned kernel is called ``entry``."""
    given = experiment()
    given = replace(
        given,
        kernel=replace(
            given.kernel,
            source=Source(name="silu.cu", text=SOURCE.replace("silu", kernel)),
            entry=kernel,
        ),
        template=replace(
            given.template,
            source=Source(name="family.cu", text=FAMILY.replace("NAME", entry)),
            entry=entry,
        ),
    )
    facts = []
    finished_run(
        given,
        device_for("sm_90"),
        [100.0] * 3,
        [({"BLOCK": 64}, [50.0] * 3)],
        told=lambda fact: facts.append(fact) or fact,
    )
    with closing(RunDirectory.create(path, given, "")) as held, held.journal() as journal:
        for fact in facts:
            journal.append(Entry(fact, t=1.0))
    return path


@pytest.fixture
def app(rig, monkeypatch):
    """The application's command line; real cubins have the kernels of the stand-in.

    The stand-in is in the application's environment alone, not in the compiler's.
    """
    monkeypatch.delenv("LD_LIBRARY_PATH")
    given = [f"LD_LIBRARY_PATH={rig.folder}", f"STAND_IN_KERNELS={rig.kernels}"]
    return lambda *scenarios: ["env", *given, *rig.app(*scenarios)]


def printed(argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def options(**changed):
    return {"verify": False, "repeat": 0, "kernel": None, "as_json": False} | changed


def test_a_runs_kernels_are_injected_and_counted(app, tmp_path, capfd):
    run = run_directory(tmp_path / "run")
    inject(run, app(*ALL), **options())
    out = capfd.readouterr().out
    assert out.startswith(printed(app(*ALL)))
    assert "silu: 13 launches of tuned kernels (2 of them into graphs)" in out


def test_end_to_end_times_alternate_with_and_without(app, tmp_path, capfd):
    run = run_directory(tmp_path / "run")
    inject(run, app("eager"), **options(repeat=2, as_json=True))
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert [len(document["seconds"][key]) for key in ("with", "without")] == [2, 2]
    assert document["kernels"][0]["name"] == SILU
    assert err.count("checksum") == 4


def test_verify_fails_for_a_wrong_kernel_after_the_application_ended_well(app, tmp_path, capfd):
    run = run_directory(tmp_path / "run", entry="silu_wrong")
    with pytest.raises(NothingValid, match="the results of 18 of 18 compared launches differ"):
        inject(run, app(*ALL), **options(verify=True))
    out = capfd.readouterr().out
    assert out.startswith(printed(app(*ALL)))
    assert "silu: 18 launches compared, 18 different" in out


def test_a_kernel_under_another_name_is_found_by_the_name_given(app, tmp_path, capfd):
    run = run_directory(tmp_path / "run", kernel="silu2")
    with pytest.raises(NothingValid, match="no kernel named _Z5silu2PKfPfi; the nearest names are"):
        inject(run, app("eager"), **options())
    inject(run, app("eager"), **options(kernel=SILU))
    assert "10 launches of tuned kernels" in capfd.readouterr().out


def test_the_exit_status_of_the_application_is_passed_on(app, tmp_path):
    run = run_directory(tmp_path / "run")
    with pytest.raises(typer.Exit) as ended:
        inject(run, app("eager", "exit"), **options())
    assert ended.value.exit_code == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inject", "missing", "--verify", "--repeat", "1", "--", "true", "--json"], "--repeat"),
        (["inject", "missing", "--", "true", "--verify", "--repeat", "1"], "not a run directory"),
        (["profile", "./missing", "--json"], "./missing: cannot be run"),
        (["capture", "--kernel", "k", "--", "./missing", "--json"], "./missing: cannot be run"),
        (["profile"], "Missing argument '-- APP …'"),
    ],
)
def test_options_of_the_command_and_of_the_application_are_told_apart(rig, words, message):
    result = CliRunner().invoke(cli, words)
    assert message in result.output + str(result.exception)


def test_verify_and_repeat_exclude_each_other(tmp_path):
    with pytest.raises(SpecError, match="--repeat times the application, --verify slows it"):
        inject(tmp_path, ["true"], **options(verify=True, repeat=1))
