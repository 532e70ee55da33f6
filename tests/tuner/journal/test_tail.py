"""A journal followed while it is written: each whole line once, and damage is named."""

import pytest

from tests.tuner.engine.driving import Run, experiment, fleet
from tuner.errors import EnvironmentProblem
from tuner.journal.file import Journal
from tuner.journal.tail import JournalTail

EXPERIMENT = experiment(trials=3)


def _written(path):
    run = Run(EXPERIMENT)
    run.drive(fleet())
    with Journal(path) as journal:
        for entry in run.entries:
            journal.append(entry)
    return path.read_bytes(), run.entries


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal.jsonl"


def test_cut_anywhere_each_entry_is_read_once_and_a_half_written_line_later(journal):
    data, entries = _written(journal)
    for cut in range(0, len(data), 53):
        journal.write_bytes(data[:cut])
        tail = JournalTail(journal, EXPERIMENT)
        first = list(tail.entries())
        assert first == entries[: max(0, data[:cut].count(b"\n") - 1)]
        with journal.open("ab") as stream:
            stream.write(data[cut:])
        assert first + list(tail.entries()) == entries
        assert list(tail.entries()) == []


def test_there_need_be_no_journal_yet_and_parts_may_be_shorter_than_a_line(journal, monkeypatch):
    monkeypatch.setattr("tuner.journal.tail.PART_BYTES", 50)
    tail = JournalTail(journal, EXPERIMENT)
    assert list(tail.entries()) == []
    _, entries = _written(journal)
    assert list(tail.entries()) == entries


def test_a_torn_line_that_a_resume_cuts_off_is_never_read(journal):
    data, entries = _written(journal)
    journal.write_bytes(data[:-1])
    tail = JournalTail(journal, EXPERIMENT)
    assert list(tail.entries()) == entries[:-1]
    with Journal(journal) as resumed:
        resumed.append(entries[-1])
    assert list(tail.entries()) == entries[-1:]


def test_one_that_is_cut_replaced_or_removed_is_not_followed_further(journal):
    data, _ = _written(journal)

    def followed():
        tail = JournalTail(journal, EXPERIMENT)
        list(tail.entries())
        return tail

    tails = [followed() for _ in range(3)]
    journal.write_bytes(data[:-100])
    with pytest.raises(EnvironmentProblem, match="was cut, replaced or removed"):
        list(tails[0].entries())
    other = journal.with_name("other")
    other.write_bytes(data)
    other.replace(journal)
    with pytest.raises(EnvironmentProblem, match="was cut, replaced or removed"):
        list(tails[1].entries())
    journal.unlink()
    with pytest.raises(EnvironmentProblem, match="was cut, replaced or removed"):
        list(tails[2].entries())


def test_what_is_no_journal_or_damaged_is_named_by_its_line(journal):
    journal.write_bytes(b"something else\n")
    with pytest.raises(EnvironmentProblem, match="is no journal"):
        list(JournalTail(journal, EXPERIMENT).entries())
    journal.unlink()
    data, _ = _written(journal)
    lines = data.splitlines(keepends=True)
    journal.write_bytes(b"".join((*lines[:3], *lines[4:])))
    with pytest.raises(EnvironmentProblem, match=r"journal\.jsonl:4: the journal is damaged"):
        list(JournalTail(journal, EXPERIMENT).entries())


def test_a_pipe_or_a_link_in_its_place_blocks_nothing(journal, tmp_path):
    journal.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentProblem, match="cannot read"):
        list(JournalTail(journal, EXPERIMENT).entries())
