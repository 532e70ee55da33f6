"""The journal: what was written is read, torn ends are dropped, damage is named."""

import os
import resource
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.engine.driving import Run, experiment, fleet
from tests.tuner.engine.simulated_fleet import Fault
from tuner.errors import EnvironmentProblem
from tuner.expressions import Expression
from tuner.journal.facts import Entry, IncumbentEntered, TrialCompiled
from tuner.journal.file import HEADER, Journal, read_journal
from tuner.plan import Binary
from tuner.trial import Configuration


def _entries():
    searched = experiment(trials=5, constraints=("x % 3 != 0 or n != 256",))
    incumbent = replace(
        searched.template,
        parameters={"x": (3, 4), "MODE": ("sum", "max")},
        defines={"TWICE": Expression.parse("2 * x")},
        rationale="not of this search",
    )
    configuration = Configuration.of({"x": 3, "MODE": "sum"})
    entered = IncumbentEntered(template=incumbent, configuration=configuration)
    run = Run(searched, incumbents=(entered,))
    run.drive(fleet(faults={1: Fault.COMPILE_ERROR, 2: Fault.WRONG}))
    return run.entries


ENTRIES = _entries()


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The journal of ENTRIES as its lines, newlines included; the header is the first."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path) as journal:
        for entry in ENTRIES:
            journal.append(entry)
    return path.read_bytes().splitlines(keepends=True)


def sealed(*texts):
    """A journal of facts in JSON, as its writer would have written them."""
    written, checksum = [HEADER], 0
    for fact in texts:
        text = b'{"at":1.000000,"t":0.500000,' + fact[1:]
        checksum = zlib.crc32(text, checksum)
        written.append(b'{"sum":"%08x",' % checksum + text[1:] + b"\n")
    return b"".join(written)


def write(path, data):
    path.write_bytes(data)
    return path


def test_what_was_appended_is_read_by_others_and_by_the_next_writer(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        assert journal.entries == []
        for entry in ENTRIES[:7]:
            journal.append(entry)
        assert read_journal(path) == ENTRIES[:7], "a reader needs no sync"
    with Journal(path) as journal:
        assert journal.entries == ENTRIES[:7]
        journal.append(*ENTRIES[7:])
        journal.sync()
    assert read_journal(path) == ENTRIES
    assert path.read_bytes() == b"".join(lines)


def test_cut_at_every_byte_it_keeps_all_whole_lines_and_goes_on(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    entries = ENTRIES[:6]
    whole = b"".join(lines[:7])
    for cut in range(len(whole) + 1):
        write(path, whole[:cut])
        kept = entries[: max(0, whole[:cut].count(b"\n") - 1)]
        assert read_journal(path) == kept
        if cut % 37 == 0 or whole[cut - 1 : cut] == b"\n" or whole[cut : cut + 1] == b"\n":
            with Journal(path) as journal:
                assert journal.entries == kept
                for entry in entries[len(kept) :]:
                    journal.append(entry)
            assert path.read_bytes() == whole


@given(tail=st.binary(min_size=1, max_size=60), kept=st.integers(0, len(ENTRIES)))
def test_random_tails_are_dropped_or_named_and_never_read_as_facts(
    tmp_path_factory, lines, tail, kept
):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, b"".join(lines[: kept + 1]) + tail)
    if b"\n" not in tail:
        assert read_journal(path) == ENTRIES[:kept]
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
        (b'{"what": 1}', "kind"),
        (b'{"kind": "trial.vanished"}', "trial.vanished"),
        (
            (
                b'{"kind": "trial.finished", "trial": 0,'
                b'"outcome": {"kind": "measured", "cells": [{"kind": "full",'
                b'"median_ns": 5e-324, "mad_ns": 0, "samples": 1, "baseline_ns": 1}]}}'
            ),
            "greater than or equal to",
        ),
        (
            (
                b'{"kind": "trial.compiled", "work": 0, "trial": 0,'
                b'"span": {"worker": "c", "began": NaN, "ended": 1.0}}'
            ),
            "began: Input should be a finite number",
        ),
        (
            (
                b'{"kind": "trial.finished", "trial": 0, "device_seconds": 1e999,'
                b'"outcome": {"kind": "measured", "cells": []}}'
            ),
            "device_seconds: Input should be a finite number",
        ),
        (
            (
                b'{"kind": "confirmation.sampled", "process": 0, "samples":'
                b'[{"trial": 0, "shape": 0, "cache": "cold", "median_ns": Infinity}]}'
            ),
            "median_ns: Input should be a finite number",
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
    "time",
    [
        b"",
        b'"at":253402300800.000000,"t":0.500000,',
        b'"at":1.000000,"t":999999999999.000000,',
        b'"at":NaN,"t":0.500000,',
        b'"at":-1.000000,"t":0.500000,',
    ],
)
def test_a_line_without_a_time_that_can_be_is_damage(tmp_path, time):
    fact = time + b'"kind":"run.finished"}'
    line = b'{"sum":"%08x",' % zlib.crc32(b"{" + fact) + fact + b"\n"
    path = write(tmp_path / "journal.jsonl", HEADER + line)
    with pytest.raises(EnvironmentProblem, match=r":2: .*does not say when it was written"):
        read_journal(path)


def test_binaries_are_passed_on_and_never_written(tmp_path):
    binary = Binary(build="b", code=b"machine code", usage=(), symbols=(), compile_seconds=0.1)
    compiled = TrialCompiled(work=0, trial=0, binaries=(binary,))
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append(Entry(compiled))
    assert b"machine code" not in path.read_bytes()
    (entry,) = read_journal(path)
    assert entry.fact == compiled
    assert entry.fact.binaries == ()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"journal": "kernelwright", "version": 1}\n', r"of version 1, and .* reads version 3"),
        (
            b'{"journal": "kernelwright", "version": 2}\n',
            r"of version 2, and .* go on with the one that wrote it, or begin a new run",
        ),
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
        for entry in ENTRIES[:3]:
            journal.append(entry)
        assert journal.synced == 0
        journal.sync()
        assert journal.synced == 3
    with Journal(tmp_path / "journal.jsonl") as journal:
        assert journal.synced == 3


def test_a_folder_that_cannot_be_written_is_one_clear_message(tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"cannot write .*nowhere"):
        Journal(tmp_path / "nowhere" / "journal.jsonl")


def test_a_full_disk_is_one_clear_message_and_loses_nothing_written(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append(ENTRIES[0])
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = len(lines[2]) + 10  # for the first of two
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, before[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="cannot write"):
            journal.append(*ENTRIES[1:3])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_journal(path) == ENTRIES[:1]
    assert path.stat().st_size == size, "half of what came together is nothing"
    journal.append(ENTRIES[1])
    journal.close()
    with Journal(path) as again:
        assert again.entries == ENTRIES[:2]
