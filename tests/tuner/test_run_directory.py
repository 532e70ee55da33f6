"""The run directory: made whole or not at all, one writer, many readers."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.tuner.engine.driving import Run, experiment, fleet
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import dump_resolved, load_resolved
from tuner.journal.facts import Entry, TrialProposed
from tuner.run_directory import RunDirectory, RunView
from tuner.trial import Configuration

EXPERIMENT = experiment()


def create(path):
    return RunDirectory.create(path, EXPERIMENT, "name: simulated\n")


def test_it_is_found_again_as_it_was_made(tmp_path):
    made = create(tmp_path / "deep" / "run")
    made.close()
    found = RunDirectory.open(tmp_path / "deep" / "run")
    assert (found.info, found.experiment, found.secret) == (
        made.info,
        made.experiment,
        made.secret,
    )
    assert (found.path / "spec.yaml").read_text() == "name: simulated\n"
    assert json.loads((found.path / "run.json").read_text())["experiment"] == "simulated"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["run"], "nothing half made is left"
    found.close()


def test_a_path_that_is_not_utf_8_is_refused_with_nothing_left(tmp_path):
    with pytest.raises(EnvironmentProblem, match="is not UTF-8 text: rename it"):
        create(tmp_path / "run\udcff")
    with pytest.raises(EnvironmentProblem, match="is not UTF-8 text: rename it"):
        RunDirectory.create(tmp_path / "run", EXPERIMENT, "", origin="spec\udcff.yaml")
    assert not list(tmp_path.iterdir())


def test_seeds_differ_between_runs_and_only_the_owner_can_read_them(tmp_path):
    one, other = create(tmp_path / "one"), create(tmp_path / "other")
    assert one.secret != other.secret
    assert stat.S_IMODE((one.path / "secret").stat().st_mode) == 0o600
    for name in ("run.json", "spec.yaml", "spec.resolved.yaml"):
        text = (one.path / name).read_text()
        assert f"{one.secret:x}" not in text
        assert str(one.secret) not in text


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_only_the_owner_can_look_into_a_run_whose_files_are_as_umask_says(tmp_path, umask):
    before = os.umask(umask)
    try:
        made = create(tmp_path / "run")
        made.journal().close()
        made.write("export/results.csv", "x")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.path.rglob("*")}
        made.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    assert modes.pop("secret") == 0o600
    for name in ("environment", "export"):
        assert modes.pop(name) == 0o777 & ~umask
    assert set(modes.values()) == {0o644 & ~umask}


@pytest.mark.parametrize("name", ["lock", "log.txt", ".results.csv.new", "llm", "rounds/01"])
def test_a_run_with_a_link_in_it_is_not_gone_on_with(tmp_path, name):
    create(tmp_path / "run").close()
    mine = tmp_path / "mine"
    mine.write_text("precious")
    link = tmp_path / "run" / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(mine)
    with pytest.raises(EnvironmentProblem, match=f"{name} is a link.*: remove it"):
        RunDirectory.open(tmp_path / "run")
    assert mine.read_text() == "precious"


def test_a_file_that_a_link_stands_for_meanwhile_is_replaced(tmp_path):
    made, mine = create(tmp_path / "run"), tmp_path / "mine"
    mine.write_text("precious")
    (made.path / ".results.csv.new").symlink_to(mine)
    (made.path / "results.csv").symlink_to(mine)
    made.write("results.csv", "mine no more")
    assert mine.read_text() == "precious"
    assert (made.path / "results.csv").read_text() == "mine no more"
    (made.path / "export").symlink_to(tmp_path)
    with pytest.raises(SpecError, match="leads out of"):
        made.write("export/mine", "mine no more")
    made.close()


NOT_INSIDE = ["../x.h", "/tmp/x.h", "a/../../x.h", "", ".", "a\n.h", "a/.."]


@pytest.mark.parametrize("name", NOT_INSIDE)
def test_no_name_leads_out_of_a_run(tmp_path, name):
    made = create(tmp_path / "run")
    with pytest.raises(SpecError, match="is no name of a file"):
        made.write(name, "")
    made.close()


@pytest.mark.parametrize("name", NOT_INSIDE)
def test_a_run_whose_headers_or_sources_have_such_names_is_refused(name):
    kernel = EXPERIMENT.kernel
    header = replace(EXPERIMENT, kernel=replace(kernel, headers=(("ok.h", ""), (name, ""))))
    with pytest.raises(SpecError, match="is no name of a file beside it"):
        load_resolved(dump_resolved(header))
    source = replace(EXPERIMENT, kernel=replace(kernel, source=replace(kernel.source, name=name)))
    with pytest.raises(SpecError, match="is no name of a file beside it"):
        load_resolved(dump_resolved(source))


def test_what_is_there_already_is_never_overwritten(tmp_path):
    create(tmp_path / "run").close()
    before = (tmp_path / "run" / "run.json").read_text()
    with pytest.raises(EnvironmentProblem, match=r"there already.*resume"):
        create(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_text() == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(EnvironmentProblem):
        create(tmp_path / "file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "run"]


def test_an_empty_folder_may_become_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    create(tmp_path / "run").close()
    assert RunView.open(tmp_path / "run").facts() == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"cannot make the run directory .*--run-dir"):
        create(tmp_path / "file" / "run")


def test_two_writers_at_once_are_refused_and_readers_are_not(tmp_path):
    held = create(tmp_path / "run")
    with pytest.raises(EnvironmentProblem, match=f"in use by process {os.getpid()}"):
        RunDirectory.open(tmp_path / "run")
    assert RunView.open(tmp_path / "run").info == held.info
    held.close()
    held.close()
    RunDirectory.open(tmp_path / "run").close()


def test_a_writer_that_was_killed_holds_nothing(tmp_path):
    create(tmp_path / "run").close()
    program = (
        "import pathlib, sys, time\n"
        "from tuner.run_directory import RunDirectory\n"
        f"held = RunDirectory.open(pathlib.Path({str(tmp_path / 'run')!r}))\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(EnvironmentProblem, match=f"in use by process {child.pid}"):
            RunDirectory.open(tmp_path / "run")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    RunDirectory.open(tmp_path / "run").close()


def test_each_environment_is_kept_once_and_tells_itself_apart(tmp_path):
    run = create(tmp_path / "run")
    first = run.record_environment({"device": "a", "driver": "1"})
    again = run.record_environment({"driver": "1", "device": "a"})
    other = run.record_environment({"device": "a", "driver": "2"})
    assert first == again != other
    names = sorted(p.name for p in (run.path / "environment").iterdir())
    assert names == ["000.json", "001.json"]
    run.close()


def test_facts_are_read_while_they_are_written(tmp_path):
    run = create(tmp_path / "run")
    simulated = Run(EXPERIMENT)
    simulated.drive(fleet())
    with run.journal() as journal:
        for count, entry in enumerate(simulated.entries, start=1):
            journal.append(entry)
            assert len(RunView.open(run.path).facts()) == count
    run.close()


def test_derived_files_are_replaced_as_a_whole(tmp_path):
    run = create(tmp_path / "run")
    run.write("export/kernel.h", "one")
    run.write("export/kernel.h", "two")
    assert (run.path / "export" / "kernel.h").read_text() == "two"
    assert [p.name for p in (run.path / "export").iterdir()] == ["kernel.h"]
    run.close()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("run.json", "{", "cannot be understood"),
        (
            "run.json",
            '{"format": 99, "run": "x", "experiment": "x", "created": ""}',
            r"format is 99.* begin a new run",
        ),
        ("secret", "not hex", r"secret, .* seed .* is damaged: restore it .* begin a new run"),
        ("secret", "", r"secret, .* seed .* is damaged: restore it"),
        ("secret", "-5\n", r"secret, .* seed .* is damaged: restore it"),
        ("spec.resolved.yaml", "version: 1\n", r"spec\.resolved\.yaml is not what the run was"),
    ],
)
def test_broken_directories_are_refused_clearly(tmp_path, name, text, complaint):
    create(tmp_path / "run").close()
    (tmp_path / "run" / name).write_text(text)
    with pytest.raises(EnvironmentProblem, match=complaint):
        RunDirectory.open(tmp_path / "run")


def test_a_run_that_lost_its_seed_says_so_and_what_to_do(tmp_path):
    create(tmp_path / "run").close()
    (tmp_path / "run" / "secret").unlink()
    with pytest.raises(EnvironmentProblem, match=r"secret, .* is gone: restore it from a copy, or"):
        RunDirectory.open(tmp_path / "run")


@pytest.mark.parametrize("name", ["run.json", "spec.resolved.yaml", "secret", "journal.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.write_bytes(b"\xff\xfe")])
def test_what_is_no_text_file_is_named_and_never_waited_for(tmp_path, name, make):
    create(tmp_path / "run").close()
    path = tmp_path / "run" / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(EnvironmentProblem, match=str(path)):
        RunDirectory.open(tmp_path / "run").journal()


@pytest.mark.parametrize("left", [0, 1, 2, None])
def test_a_journal_that_lost_trials_is_neither_read_nor_gone_on_with(tmp_path, left):
    directory = create(tmp_path / "run")
    with directory.journal() as journal:
        for trial in range(2):
            fact = TrialProposed(trial=trial, configuration=Configuration.of({"x": trial}))
            journal.append(Entry(fact))
    directory.write("results.jsonl", "{}\n{}\n")
    path = directory.path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    if left is not None:
        path.write_bytes(b"".join(lines[:left]))
    for read in (RunView.open(directory.path).facts, directory.journal):
        with pytest.raises(EnvironmentProblem, match=r"of 2: it was cut or replaced; restore it"):
            read()
    path.write_bytes(b"".join(lines))
    assert len(RunView.open(directory.path).facts()) == 2
    directory.journal().close()
    directory.close()


def test_a_journal_that_lost_its_end_is_told_of_though_no_trial_is_missing(tmp_path):
    directory = create(tmp_path / "run")
    simulated = Run(EXPERIMENT)
    simulated.drive(fleet())
    with directory.journal() as journal:
        for entry in simulated.entries:
            journal.append(entry)
        journal.sync()
        directory.write("status.json", json.dumps({"facts": journal.synced, "more": []}))
    path = directory.path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    for read in (RunView.open(directory.path).facts, directory.journal):
        with pytest.raises(
            EnvironmentProblem, match=r"status\.json, which .* cut or replaced; restore .* move "
        ):
            read()
    (directory.path / "status.json").rename(directory.path / "moved.json")
    directory.journal().close()
    path.write_bytes(whole)
    for text in ("", "[]", "{", '{"facts": "many"}'):
        directory.write("status.json", text)
        assert RunView.open(directory.path).facts() == simulated.facts, "it only ever adds doubt"
    directory.close()


def test_what_is_said_of_a_damaged_journal_is_enough_to_go_on(tmp_path):
    directory = create(tmp_path / "run")
    with directory.journal() as journal:
        for trial in range(3):
            fact = TrialProposed(trial=trial, configuration=Configuration.of({"x": trial}))
            journal.append(Entry(fact))
    directory.write("results.jsonl", "{}\n{}\n{}\n")
    directory.write("status.json", json.dumps({"facts": 3}))
    path = directory.path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{}\n", lines[3]]))
    advice = r":3: .* its first 2 lines and move results\.jsonl and status\.json beside it away"
    with pytest.raises(EnvironmentProblem, match=advice):
        directory.journal()
    path.write_bytes(b"".join(lines[:2]))
    for name in ("results.jsonl", "status.json"):
        (directory.path / name).rename(tmp_path / name)
    with directory.journal() as journal:
        assert len(journal.entries) == 1
    directory.close()


def test_a_run_lost_but_for_what_it_measured_is_no_folder_without_a_run(tmp_path):
    directory = create(tmp_path / "run")
    directory.journal().close()
    directory.close()
    (directory.path / "run.json").unlink()
    with pytest.raises(EnvironmentProblem, match=r"run\.json is gone, though .* restore it"):
        RunView.open(directory.path)
    (directory.path / "journal.jsonl").unlink()
    with pytest.raises(SpecError, match="is not a run directory"):
        RunView.open(directory.path)
    with pytest.raises(EnvironmentProblem, match="is there already and is no run directory: move"):
        create(directory.path)


def test_a_name_too_long_is_one_clear_message(tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"File name too long.*--run-dir"):
        create(tmp_path / ("x" * 300))


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(SpecError, match="is not a run directory"):
        RunView.open(tmp_path)
