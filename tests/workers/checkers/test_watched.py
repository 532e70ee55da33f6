"""Launchers under a tool: begun before their jobs are known, they launch what they are told."""

import sys
import threading
from pathlib import Path

import pytest

from tuner.plan import Build, CellPlan, KernelStep
from workers.checkers.job import Job, job_format
from workers.checkers.tool import Tool
from workers.checkers.watched import Launchers
from workers.devices.port import StagedBuffer

SOURCE = 'kernel void tell(global int *out) { out[0] = 1; printf("launched %d\\n", NUMBER); }'


def job(folder: Path, number: int) -> Path:
    """A file of a job whose kernel prints its number."""
    source = SOURCE.replace("NUMBER", str(number))
    out = StagedBuffer(
        name="out", kind="out", dtype="int32", shape=(1,), strides=(1,), size=4, align=64
    )
    step = KernelStep(entry="tell", grid=(1, 1, 1), block=(1, 1, 1), arguments=("out",))
    made = Job(
        build=Build(language="opencl", file="tell.cl", source=source, entries=("tell",)),
        code="",
        symbols=(),
        cell=CellPlan(build=0, steps=(step,)),
        arguments=(out,),
    )
    path = folder / f"{number}.json"
    path.write_bytes(job_format().dump_json(made))
    return path


def tool(command: tuple[str, ...], log: Path, *, together: bool = True) -> Tool:
    """A tool that watches nothing and writes no log."""
    return Tool(
        name="none", command=command, log=log, most_bytes=1, read=lambda _: (), together=together
    )


@pytest.fixture
def launchers(tmp_path):
    made = Launchers("opencl", 0, tmp_path, threading.Event())
    yield made
    made.close()


def begin(launchers: Launchers, command: tuple[str, ...], folder: Path, **more: bool) -> None:
    launchers.begin(lambda _: (tool(command, folder / "ahead", **more),))


def test_one_that_was_begun_launches_what_it_is_told_later(launchers, tmp_path):
    begin(launchers, ("/usr/bin/env",), tmp_path)
    found = launchers.launch(
        tool(("/bin/false",), tmp_path / "other"), [job(tmp_path, 1), job(tmp_path, 2)]
    )
    assert (found.log, found.problem) == (None, "")
    assert (tmp_path / "ahead.out").read_text() == "launched 1\nlaunched 2\n"


@pytest.mark.slow
def test_one_serves_once_and_the_next_is_begun_when_it_is_needed(launchers, tmp_path):
    begin(launchers, ("/usr/bin/env",), tmp_path)
    other = tool(("/usr/bin/env",), tmp_path / "other")
    assert not launchers.launch(other, [job(tmp_path, 1)]).problem
    assert not launchers.launch(other, [job(tmp_path, 2)]).problem
    assert (tmp_path / "ahead.out").read_text() == "launched 1\n"
    assert (tmp_path / "other.out").read_text() == "launched 2\n"


def test_one_that_launches_nothing_is_no_success(launchers, tmp_path):
    found = launchers.launch(tool(("/usr/bin/env",), tmp_path / "log"), [])
    assert found.problem == "exit 1: was given no job"


@pytest.mark.slow
def test_a_tool_that_fails_early_is_told_when_it_is_used(launchers, tmp_path):
    words = "import sys; sys.exit('broken')"
    begin(launchers, (sys.executable, "-c", words), tmp_path)
    found = launchers.launch(tool(("/usr/bin/env",), tmp_path / "other"), [job(tmp_path, 1)])
    assert found.problem == "exit 1: broken"


@pytest.mark.slow
def test_a_tool_for_single_candidates_is_not_begun(launchers, tmp_path):
    begin(launchers, ("/usr/bin/env",), tmp_path, together=False)
    assert not (tmp_path / "ahead.out").exists()
