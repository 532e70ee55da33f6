"""The journal: what was written is read, torn ends are dropped, damage is named."""

import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.session.driving import Run, experiment, fleet
from tuner.errors import EnvironmentProblem
from tuner.simulation import Fault
from tuner.store.journal import HEADER, Journal, encode, read_journal


def _facts():
    run = Run(experiment(trials=5), infeasible=frozenset({(x, 0) for x in range(0, 200, 3)}))
    run.drive(fleet(faults={1: Fault.COMPILE_ERROR, 2: Fault.WRONG}))
    return run.facts


FACTS = _facts()
BYTES = HEADER + b"".join(encode(fact) for fact in FACTS)


def write(path, data):
    path.write_bytes(data)
    return path


def test_what_was_appended_is_read_by_others_and_by_the_next_writer(tmp_path):
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
    assert path.read_bytes() == BYTES


def test_cut_at_every_byte_it_keeps_all_whole_lines_and_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    facts = FACTS[:12]
    whole = HEADER + b"".join(encode(fact) for fact in facts)
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


@settings(max_examples=300, deadline=None)
@given(tail=st.binary(min_size=1, max_size=60), lines=st.integers(0, len(FACTS)))
def test_random_tails_are_dropped_or_named_and_never_read_as_facts(tmp_path_factory, tail, lines):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, HEADER + b"".join(encode(fact) for fact in FACTS[:lines]) + tail)
    if b"\n" not in tail:
        assert read_journal(path) == FACTS[:lines]
    else:
        with pytest.raises(EnvironmentProblem, match=rf"journal.jsonl:{lines + 2}: .*damaged"):
            read_journal(path)
        with pytest.raises(EnvironmentProblem):
            Journal(path)
        assert path.read_bytes().endswith(tail), "a damaged journal is left alone"


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
        (b"\xff\xfe", "JSON"),
    ],
)
def test_damage_in_the_middle_names_its_line(tmp_path, line, complaint):
    proposed = next(fact for fact in FACTS if fact.kind == "trial.proposed")
    data = HEADER + encode(proposed) + line + b"\n" + encode(FACTS[0])
    path = write(tmp_path / "journal.jsonl", data)
    with pytest.raises(EnvironmentProblem, match=rf":3: .*{complaint}"):
        read_journal(path)


@pytest.mark.parametrize(
    "data", [b'{"journal": "kernelwright", "version": 2}\n', b"\x80" * 99, HEADER[:-1] + b" "]
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path, data):
    path = write(tmp_path / "journal.jsonl", data)
    with pytest.raises(EnvironmentProblem, match="version 1"):
        Journal(path)
    assert path.read_bytes() == data


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
