"""Winners under Oclgrind, where it is installed: defects that every answer hides are seen."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.harness import Laboratory
from tuner.trial import Code, Measured
from workers.checkers.examination import tools, tools_for
from workers.checkers.tool import Tool

SPEC = Path(__file__).parents[2] / "exploits/experiments/affine/experiment.yaml"
needs_oclgrind = pytest.mark.skipif(shutil.which("oclgrind") is None, reason="no oclgrind")

HEAD = """kernel void affine(global float *out, global const float *x, global const float *y, int n)
{
    int i = get_global_id(0), l = get_local_id(0);
"""
DEFECTS = {
    "Invalid read": "float v = x[i]; volatile float after = x[n]; "
    "if (i < n) out[i] = fma(2.0f, v, y[i]);",
    "race": "local float s[64]; s[0] = x[min(i, n - 1)]; barrier(CLK_LOCAL_MEM_FENCE); "
    "if (i < n) out[i] = fma(2.0f, x[i], y[i]) + 0.0f * (s[0] != s[0]);",
    "Uninitialized": "if (i < n) { float a = out[i]; "
    "out[i] = fma(2.0f, x[i], y[i]) + (a > 3e38f ? 0.0f : 0.0f * (float)(a == a + 1)); }",
}
HONEST = "if (i < n) out[i] = fma(2.0f, x[i], y[i]);"


@pytest.fixture(scope="module")
def laboratory():
    made = Laboratory(SPEC)
    yield made
    made.close()


def found_nothing(count, kernels):
    return f"oclgrind found nothing in {count} of the winners' {kernels} kernels"


@needs_oclgrind
@pytest.mark.parametrize("what", DEFECTS)
def test_a_defect_that_the_answers_hide_is_seen(laboratory, what):
    candidate = laboratory.candidate(f"{HEAD} {DEFECTS[what]} }}")
    assert isinstance(laboratory.bench.run(candidate).outcome, Measured)
    examined = laboratory.examined(candidate)
    rejected = dict(examined.failed)[candidate.trial]
    assert rejected.code is Code.DEFECT
    assert what.lower() in rejected.detail.lower(), rejected


@needs_oclgrind
def test_an_honest_kernel_passes_and_the_report_says_by_whom(laboratory):
    candidate = laboratory.candidate(f"{HEAD} {HONEST} }}")
    examined = laboratory.examined(candidate)
    assert (examined.failed, examined.notes) == ((), (found_nothing(1, 1),))


@needs_oclgrind
def test_a_function_with_restricted_pointers_can_be_checked(laboratory):
    helper = (
        "static inline void one(global float *restrict out, global const float *restrict x, "
        "global const float *restrict y, int i) { out[i] = fma(2.0f, x[i], y[i]); }\n"
    )
    body = "for (int k = 0; k < 4; ++k) if (4 * i + k < n) one(out, x, y, 4 * i + k);"
    candidate = laboratory.candidate(f"{helper}{HEAD} {body} }}")
    examined = laboratory.examined(candidate)
    assert (examined.failed, examined.notes) == ((), (found_nothing(1, 1),))


@needs_oclgrind
def test_of_several_checked_together_the_guilty_one_is_found(laboratory):
    honest, raced, other = (
        laboratory.candidate(f"{HEAD} {body} }}", trial=trial)
        for trial, body in enumerate((HONEST, DEFECTS["race"], f"{HONEST} /* other */"))
    )
    examined = laboratory.examined(honest, raced, other)
    assert examined.trials == (0, 1, 2)
    assert [trial for trial, _ in examined.failed] == [1]
    assert examined.notes == (found_nothing(2, 3),)


def test_without_the_tool_the_report_says_so(laboratory, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    candidate = laboratory.candidate(f"{HEAD} {HONEST} }}")
    examined = laboratory.examined(candidate)
    assert examined.failed == ()
    (note,) = examined.notes
    assert note.endswith("races and stray accesses: `kernelwright doctor` says what to install")


@needs_oclgrind
def test_shapes_too_large_for_a_tool_are_a_note_with_a_remedy(laboratory, monkeypatch, tmp_path):
    few = [replace(tool, most_bytes=1) for tool in tools(laboratory.device, tmp_path / "log")]
    monkeypatch.setattr("workers.checkers.examination.tools", lambda *_: few)
    examined = laboratory.examined(laboratory.candidate(f"{HEAD} {HONEST} }}"))
    (note,) = examined.notes
    assert note.startswith("oclgrind examined nothing: no shape")
    assert note.endswith("in shapes.held_out would do")


def test_a_tool_runs_only_where_it_has_something_to_check(laboratory, monkeypatch):
    kernels = ("out[i] = x[i];", "out[i] = y[i];")
    bare, other = (laboratory.candidate(f"{HEAD} {k} }}", trial=t) for t, k in enumerate(kernels))

    def kinds(_, log):
        def lacks(binary, _steps):
            return "no barrier" if binary in bare.binaries else ""

        yield Tool(
            name="bar",
            command=("/usr/bin/env",),
            log=log,
            most_bytes=1 << 20,
            read=lambda _: ("a barrier",),
            lacks=lacks,
        )

    monkeypatch.setattr("workers.checkers.examination.tools", lambda *given: [*kinds(*given)])
    assert tools_for([bare], laboratory.device, Path("log")) == ()
    (tool,) = tools_for([bare, other], laboratory.device, Path("log"))
    assert tool.name == "bar"
    note = "bar has nothing to check in 1 of the winners' {} kernels: no barrier"
    examined = laboratory.examined(bare)
    assert (examined.failed, examined.notes) == ((), (note.format(1),))
    examined = laboratory.examined(bare, other)
    assert [trial for trial, _ in examined.failed] == [1]
    assert examined.notes == (note.format(2),)


def test_a_tool_that_fails_is_a_note_and_no_verdict(laboratory, monkeypatch, tmp_path):
    tool = tmp_path / "oclgrind"
    tool.write_text("#!/bin/sh\necho broken\nexit 3\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    examined = laboratory.examined(laboratory.candidate(f"{HEAD} {HONEST} }}"))
    assert examined.failed == ()
    assert examined.notes == ("oclgrind could not check trial 0: exit 3: broken",)


def test_a_tool_that_hangs_is_stopped(laboratory, monkeypatch, tmp_path):
    tool = tmp_path / "oclgrind"
    tool.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("workers.checkers.watched.SECONDS", 0.5)
    examined = laboratory.examined(laboratory.candidate(f"{HEAD} {HONEST} }}"))
    assert "stopped after" in examined.notes[0]
    assert threading.active_count() < 50
