"""``apply`` on files: what it reads and writes, and what it refuses without writing anything."""

import os
from dataclasses import replace

import pytest

from cluster.commands.apply import apply
from tests.tuner.export.application_runs import APPLICATION, experiment
from tests.tuner.results.runs import finished_facts
from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment
from tuner.journal.facts import Entry
from tuner.run_directory import RunDirectory


def write_run(path, one: Experiment, device, configuration) -> None:
    """A run directory in which one configuration was twice as fast as the baseline."""
    shapes = (*one.shapes.tune, *one.shapes.held_out)
    baseline = [1000.0] * len(shapes)
    facts = finished_facts(one, device, baseline, [(configuration, [500.0] * len(shapes))])
    directory = RunDirectory.create(path, one, "")
    journal = directory.journal()
    for fact in facts:
        journal.append(Entry(fact))
    journal.close()
    directory.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("applied") / "run"
    write_run(path, experiment(), cuda_device(90), {"BLOCK": 64})
    return path


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "app" / "src" / "app.cu"
    file.parent.mkdir(parents=True)
    file.write_text(APPLICATION)
    file.chmod(0o640)
    return file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_diff_is_printed_and_nothing_is_written(run, source, tmp_path, capsys):
    apply(run, source, write=False, root=tmp_path / "app")
    printed = capsys.readouterr()
    assert printed.out.startswith("--- /dev/null\n+++ b/src/app_scale_tuned.cuh\n@@ -0,0 +1,")
    assert "\n--- a/src/app.cu\n+++ b/src/app.cu\n" in printed.out
    assert "kernelwright: tuned kernels serve by = 2.0 alone" in printed.err
    assert names(source.parent) == ["app.cu"]
    assert source.read_text() == APPLICATION


def test_writing_keeps_the_original_and_the_permissions_and_can_be_repeated(run, source, capsys):
    apply(run, source, write=True, root=None)
    assert names(source.parent) == ["app.cu", "app.cu.orig", "app_scale_tuned.cuh"]
    assert source.with_name("app.cu.orig").read_text() == APPLICATION
    assert "scale_tuned(rows" in source.read_text()
    assert source.stat().st_mode & 0o777 == 0o640
    assert len(capsys.readouterr().out.splitlines()) == 3
    written = source.read_text()
    apply(run, source, write=True, root=None)
    assert capsys.readouterr().out == f"{source} is up to date\n"
    source.write_text(written + "int more;\n")
    apply(run, source, write=True, root=None)
    assert source.with_name("app.cu.orig").read_text() == APPLICATION + "int more;\n"


def test_a_link_is_followed_within_the_application_alone(run, source, tmp_path):
    link = source.parent / "link.cu"
    link.symlink_to(source)
    apply(run, link, write=True, root=tmp_path / "app")
    assert link.is_symlink()
    assert "scale_tuned(rows" in source.read_text()
    outside = tmp_path / "other" / "link.cu"
    outside.parent.mkdir()
    outside.symlink_to(source)
    with pytest.raises(SpecError, match=r"link.cu \(which leads to .*app.cu\) lies outside"):
        apply(run, outside, write=True, root=outside.parent)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.unlink(), "cannot be found"),
        (lambda file: file.write_bytes(b"\xff\xfe" * 20), "is not UTF-8 text"),
        (lambda file: file.write_text(APPLICATION + "\0"), "contains a zero byte"),
        (lambda file: file.write_text("int x;\n" * 1_000_000), "is larger than"),
        (lambda file: (file.unlink(), file.mkdir()), "is not a regular file"),
        (lambda file: (file.unlink(), os.mkfifo(file)), "is not a regular file"),
        (lambda file: (file.unlink(), file.symlink_to(file)), "cannot be found"),
        (
            lambda file: file.with_name("app.cu.orig").write_text("own"),
            r"app\.cu\.orig exists and is another text: move it away",
        ),
        (
            lambda file: file.with_name("app_scale_tuned.cuh").symlink_to("/dev/null"),
            r"app_scale_tuned\.cuh cannot be opened",
        ),
        (lambda file: file.chmod(0o440), "app.cu is read-only: make it writable"),
        (lambda file: file.parent.chmod(0o550), "src is read-only: make it writable"),
    ],
)
def test_files_that_cannot_be_changed_are_named_and_nothing_is_written(run, source, damage, said):
    damage(source)
    before = names(source.parent)
    with pytest.raises((SpecError, EnvironmentProblem), match=said):
        apply(run, source, write=True, root=None)
    source.parent.chmod(0o750)
    assert names(source.parent) == before


def test_a_failed_write_puts_everything_back(run, source, monkeypatch):
    from cluster.commands import apply as command

    written = []

    def write_whole(path, text):
        written.append(path.name)
        if path.name == "app.cu":
            raise EnvironmentProblem("no space")
        path.write_text(text)

    monkeypatch.setattr(command, "write_whole", write_whole)
    with pytest.raises(EnvironmentProblem, match="no space"):
        apply(run, source, write=True, root=None)
    assert written == ["app.cu.orig", "app_scale_tuned.cuh", "app.cu"]
    assert names(source.parent) == ["app.cu"]


def test_a_folder_that_is_no_run_is_named(tmp_path, source):
    with pytest.raises(SpecError, match="is not a run directory"):
        apply(tmp_path, source, write=False, root=None)


def test_opencl_gets_its_sources_and_header_beside_an_unchanged_file(tmp_path, capsys):
    one = replace(load_experiment("deploy/experiments/silu_and_mul/opencl.yaml"), agents=None)
    first = {name: values[0] for name, values in one.template.parameters.items()}
    write_run(tmp_path / "run", one, opencl_cpu(), first)
    file = tmp_path / "silu.cl"
    file.write_text(one.kernel.source.text)
    apply(tmp_path / "run", file, write=True, root=tmp_path)
    printed = capsys.readouterr()
    assert "silu.cl and its launches stay: OpenCL programs are built" in printed.err
    assert {"silu.cl", "silu_and_mul.h", "silu_and_mul_general.cl"} < set(names(tmp_path))
    assert file.read_text() == one.kernel.source.text
    apply(tmp_path / "run", file, write=True, root=tmp_path)
    assert capsys.readouterr().out.endswith("silu.cl is up to date\n")
    (tmp_path / "silu_and_mul.h").write_text("int own;\n")
    with pytest.raises(SpecError, match=r"silu_and_mul\.h is not of an export: move it away"):
        apply(tmp_path / "run", file, write=True, root=tmp_path)
    file.write_text(one.kernel.source.text.replace("float", "double", 1))
    with pytest.raises(SpecError, match="is not what"):
        apply(tmp_path / "run", file, write=True, root=tmp_path)
