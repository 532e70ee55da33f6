"""The journal: what was written is read, torn ends are dropped, damage is named."""

import os
import resource
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.briefs import twice
from tests.tuner.engine.driving import Run, experiment, fleet
from tuner.engine.simulated_fleet import Fault
from tuner.errors import EnvironmentProblem
from tuner.journal.facts import IncumbentEntered
from tuner.journal.file import HEADER, Journal, read_journal
from tuner.trial import Configuration


def _facts():
    run = Run(
        experiment(trials=5),
        infeasible=frozenset({(x, 0) for x in range(0, 200, 3)}),
        incumbents=(
            IncumbentEntered(
                template=twice().template, configuration=Configuration.of({"x": 3, "MODE": "sum"})
            ),
        ),
    )
    run.drive(fleet(faults={1: Fault.COMPILE_ERROR, 2: Fault.WRONG}))
    return run.facts


FACTS = _facts()


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The journal of FACTS as its lines, newlines included; the header is the first."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path) as journal:
        for fact in FACTS:
            journal.append(fact)
    return path.read_bytes().splitlines(keepends=True)


def sealed(*texts):
    """A journal of facts in JSON, as its writer would have written them."""
    written, checksum = [HEADER], 0
    for text in texts:
        checksum = zlib.crc32(text, checksum)
        written.append(b'{"sum":"%08x",' % checksum + text[1:] + b"\n")
    return b"".join(written)


def write(path, data):
    path.write_bytes(data)
    return path


def test_what_was_appended_is_read_by_others_and_by_the_next_writer(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        assert journal.facts == []
        for fact in FACTS[:7]:
            journal.append(fact)
        assert read_journal(path) == FACTS[:7], "a reader needs no sync"
    with Journal(path) as journal:
        assert journal.facts == FACTS[:7]
        for fact in FACTS[7:]:
            journal.append(fact)
        journal.sync()
    assert read_journal(path) == FACTS
    assert path.read_bytes() == b"".join(lines)


def test_cut_at_every_byte_it_keeps_all_whole_lines_and_goes_on(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    facts = FACTS[:12]
    whole = b"".join(lines[:13])
    for cut in range(len(whole) + 1):
        write(path, whole[:cut])
        kept = facts[: max(0, whole[:cut].count(b"\n") - 1)]
        assert read_journal(path) == kept
        if cut % 37 == 0 or whole[cut - 1 : cut] == b"\n" or whole[cut : cut + 1] == b"\n":
            with Journal(path) as journal:
                assert journal.facts == kept
                for fact in facts[len(kept) :]:
                    journal.append(fact)
            assert path.read_bytes() == whole


@given(tail=st.binary(min_size=1, max_size=60), kept=st.integers(0, len(FACTS)))
def test_random_tails_are_dropped_or_named_and_never_read_as_facts(
    tmp_path_factory, lines, tail, kept
):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, b"".join(lines[: kept + 1]) + tail)
    if b"\n" not in tail:
        assert read_journal(path) == FACTS[:kept]
    else:
        with pytest.raises(EnvironmentProblem, match=rf"journal.jsonl:{kept + 2}: .*damaged"):
            read_journal(path)
        with pytest.raises(EnvironmentProblem):
            Journal(path)
        assert path.read_bytes().endswith(tail), "a damaged journal is left alone"


def test_a_line_that_is_gone_moved_twice_there_or_changed_is_named(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    for number in range(2, len(lines)):
        before, line, after = lines[: number - 1], lines[number - 1], lines[number:]
        for damaged, named in (
            ([*before, *after], number),
            ([*before, line, line, *after], number + 1),
            ([*before, after[0], line, *after[1:]], number),
            ([*before, line.replace(b":", b": ", 2).replace(b": ", b":", 1), *after], number),
        ):
            if damaged == lines:
                continue
            write(path, b"".join(damaged))
            with pytest.raises(
                EnvironmentProblem, match=rf":{named}: .*keep its first {named - 1} "
            ):
                read_journal(path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{}", "kind"),
        (b'{"kind": "trial.vanished"}', "trial.vanished"),
        (
            b'{"kind": "trial.proposed", "trial": 7, "configuration": {"values": {}}}',
            "trial 7 where 1 is due",
        ),
        (
            (
                b'{"kind": "trial.finished", "trial": 4, "bench": "",'
                b'"device_seconds": 0, "searched": 0, "outcome": {"kind": "measured", "cells": []}}'
            ),
            "trial 4 was never proposed",
        ),
        (
            (
                b'{"kind": "trial.finished", "trial": 0, "bench": "", "device_seconds": 0,'
                b'"searched": 0, "outcome": {"kind": "measured", "cells": [{"kind": "full",'
                b'"median_ns": 0, "mad_ns": 0, "samples": 1, "baseline_ns": 1}]}}'
            ),
            "greater than 0",
        ),
        (b"{\xff\xfe", "JSON"),
    ],
)
def test_what_no_writer_writes_names_its_line(tmp_path, line, complaint):
    proposed = b'{"kind":"trial.proposed","trial":0,"configuration":{"values":{}}}'
    path = write(tmp_path / "journal.jsonl", sealed(proposed, line, proposed))
    with pytest.raises(EnvironmentProblem, match=rf":3: .*{complaint}"):
        read_journal(path)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"journal": "kernelwright", "version": 1}\n', r"of version 1, and .* reads version 2"),
        *(
            (data, r"is no journal .* restore it from a copy, or begin a new run")
            for data in (b"\x80" * 99, bytes(99), HEADER[:-1] + b" ", HEADER[:-1] + bytes(99))
        ),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path, data, complaint):
    path = write(tmp_path / "journal.jsonl", data)
    for use in (Journal, read_journal):
        with pytest.raises(EnvironmentProblem, match=complaint):
            use(path)
    assert path.read_bytes() == data


def test_what_is_no_journal_is_not_read_however_large_it_is(tmp_path):
    path = write(tmp_path / "journal.jsonl", b"x")
    os.truncate(path, 1 << 42)
    with pytest.raises(EnvironmentProblem, match="is no journal"):
        read_journal(path)


def test_it_knows_how_many_facts_no_crash_takes_any_more(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as journal:
        for fact in FACTS[:3]:
            journal.append(fact)
        assert journal.synced == 0
        journal.sync()
        assert journal.synced == 3
    with Journal(tmp_path / "journal.jsonl") as journal:
        assert journal.synced == 3


def test_a_folder_that_cannot_be_written_is_one_clear_message(tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"cannot write .*nowhere"):
        Journal(tmp_path / "nowhere" / "journal.jsonl")


def test_a_full_disk_is_one_clear_message_and_loses_nothing_written(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append(FACTS[0])
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="cannot write"):
            journal.append(FACTS[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_journal(path) == FACTS[:1]
    journal.close()
    assert path.stat().st_size == size + 10
    with Journal(path) as again:
        assert again.facts == FACTS[:1]
