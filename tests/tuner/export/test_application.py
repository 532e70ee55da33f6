"""The change of an application's source: what is added, kept, replaced and refused."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.tuner.export.application_runs import (
    APPLICATION,
    KERNEL,
    PACK,
    after,
    applied,
    experiment,
    parse,
    run_of,
)
from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.errors import NothingValid, SpecError
from tuner.experiment.model import Argument, Launch


def test_the_diff_adds_lines_and_removes_none():
    application = applied()
    own = application.diff().partition("--- a/app.cu\n")[2]
    assert not [line for line in own.splitlines() if line.startswith("-")]
    assert own.startswith("+++ b/app.cu\n@@")
    added = [line[1:] for line in own.splitlines()[1:] if line.startswith("+")]
    assert '#include "app_scale_tuned.cuh"' in added
    assert "    scale_tuned(rows, BLOCK, 0, stream, out, x, rows,  // by two" in added
    assert (
        "        scale<<<kw_grid, kw_block, kw_shared, kw_stream>>>(out, x, rows, n, by);" in added
    )
    others = "other values the original is launched"
    assert application.notes == (
        "tuned kernels serve by = 2.0 alone, which is what the run passed",
        "general is compiled for 2 sets of values of its macros, which depend on the shape; at "
        + others,
        "trial1 is compiled for 1 sets of values of its macros, which depend on the shape; at "
        + others,
    )


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch")
def test_patch_applies_the_diff(tmp_path):
    text = APPLICATION.rstrip("\n").replace("\n", "\r\n")
    (tmp_path / "app.cu").write_bytes(text.encode())
    application = applied(text)
    subprocess.run(
        ["patch", "-p1", "--binary"],
        cwd=tmp_path,
        input=application.diff().encode(),
        check=True,
        capture_output=True,
    )
    for path, wanted in after(application).items():
        assert (tmp_path / path).read_bytes().decode() == wanted


def test_line_ends_and_a_missing_one_stay_as_they_are():
    text = APPLICATION.rstrip("\n").replace("\n", "\r\n")
    made = after(applied(text))["app.cu"]
    assert made.count("\n") == made.count("\r\n") > text.count("\n")
    assert made.endswith("}")
    assert after(applied("\ufeff" + APPLICATION))["app.cu"].startswith("\ufeff#include")
    alone = KERNEL.rstrip("\n")
    assert after(applied(alone))["app.cu"].endswith("#endif  // kernelwright apply scale: end")


def test_applying_again_changes_nothing_and_another_run_replaces_the_first():
    files = after(applied())
    again = applied(files["app.cu"], existing=files.get)
    assert again.diff() == ""
    assert after(again) == files
    other = applied(files["app.cu"], run_of(experiment(), special=2), existing=files.get)
    assert after(other) == after(applied(history=run_of(experiment(), special=2)))


def test_applying_again_keeps_what_was_changed_around_and_reads_a_changed_launch():
    files = after(applied())
    changed = files["app.cu"].replace("void scale_all(", "int answer = 42;\nvoid scale_all(")
    changed = changed.replace("n, 2.0f);", "n, 4.0f);")
    with pytest.raises(
        SpecError, match=r"app\.cu:\d+: the lines that `apply` added .* were edited"
    ):
        applied(changed, existing=files.get)
    changed = files["app.cu"].replace("void scale_all(", "int answer = 42;\nvoid scale_all(")
    head, middle, tail = changed.rpartition("#else")
    changed = head + middle + tail.replace("n, 2.0f);", "n, 4.0f);")
    made = after(applied(changed, existing=files.get))["app.cu"]
    assert "int answer = 42;\n" in made
    assert made.count("n, 4.0f);") == 2
    assert "n, 2.0f);" not in made


def test_a_damaged_region_or_tuned_file_is_refused_with_its_place():
    files = after(applied())
    lines = files["app.cu"].split("\n")
    ends = [n for n, line in enumerate(lines) if line.startswith("#endif  // kernelwright")]
    broken = "\n".join(lines[: ends[-1]] + lines[ends[-1] + 1 :])
    with pytest.raises(SpecError, match=r"app\.cu:\d+: the region .* has no end"):
        applied(broken, existing=files.get)
    edited = files | {"app_scale_tuned.cuh": files["app_scale_tuned.cuh"] + "int own;\n"}
    with pytest.raises(SpecError, match=r"app_scale_tuned\.cuh was edited since"):
        applied(existing=edited.get)
    with pytest.raises(SpecError, match=r"app_scale_tuned\.cuh was not written by `apply`"):
        applied(existing={"app_scale_tuned.cuh": "int own;\n"}.get)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* by; }", "* by + ONE; }"),
        ("x[blockIdx.x * n + i], by", "x[i], by"),
        ("#define ONE 1", "#define ONE 2"),
        ("constexpr int FIRST = 0", "constexpr int FIRST = 1"),
        ("float by) {", "float by, int more) {"),
    ],
)
def test_a_kernel_that_changed_since_the_run_is_refused(old, new):
    kernel = "#define ONE 1\nconstexpr int FIRST = 0;\n" + KERNEL.replace("i = ", "i = FIRST + ")
    kernel = kernel.replace("* by; }", "* by * ONE; }").replace("* by + ONE", "* by * ONE + 0")
    history = run_of(experiment(source=kernel))
    text = APPLICATION.replace(KERNEL, kernel)
    assert "scale_tuned(rows" in after(applied(text, history))["app.cu"]
    changed = text.replace(old.replace("* by;", "* by * ONE;"), new)
    assert changed != text
    said = r"app\.cu:9: the kernel 'scale', or what it uses there, is not what scale-1 measured"
    with pytest.raises(SpecError, match=said):
        applied(changed, history)


def test_changes_that_the_kernel_does_not_reach_do_not_matter():
    text = APPLICATION.replace("float by) {\n", "float by) {\n  // comment\n\n")
    text = text.replace("// A row at a time.", "#include <vector>\nint scaled(int x) { return x; }")
    assert "scale_tuned(rows" in after(applied(text))["app.cu"]


def test_a_header_that_changed_since_the_run_is_refused():
    kernel = '#include "pack.cuh"\n' + KERNEL.replace("x * by", "pack(x) * by")
    history = run_of(experiment(source=kernel))
    text = APPLICATION.replace(KERNEL, kernel)
    assert applied(text, history, "src/app.cu", {"src/pack.cuh": PACK}.get).diff()
    other = {"src/pack.cuh": PACK.replace("return x", "return -x")}
    with pytest.raises(SpecError, match=r"^src/pack\.cuh: the kernel 'scale', or what it uses"):
        applied(text, history, "src/app.cu", other.get)
    with pytest.raises(SpecError, match=r"app\.cu defines no kernel 'scale': name the file"):
        applied(text.replace("scale(float", "rescale(float"))


HOST = "void scale_all(float* out, const float* x, int rows, int n, cudaStream_t stream) {\n"


def notes_of(text: str, **changes) -> list[str]:
    """What is said of launches that stay."""
    application = applied(text, run_of(experiment(**changes)))
    assert "scale_tuned(dim3" in after(application)["app.cu"]
    return [note for note in application.notes if "stays" in note or "was found" in note]


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            HOST + "  DISPATCH(rows, [&] { scale<<<rows, 128>>>(out, x, rows, n, 2); });\n}\n",
            "app.cu:12: this launch of scale stays: it is among the arguments of DISPATCH. To",
        ),
        (
            "#define RUN(r) scale<<<r, 128>>>(out, \\\n  x, r, n, 2)\n"
            + HOST
            + "  RUN(rows);\n}\n",
            (
                "app.cu:11: this launch of scale stays: it is in a macro. To replace it by hand, "
                "write scale_tuned(r, 128, 0, 0, out, x, r, n, 2);"
            ),
        ),
        (
            HOST + "  int a = (scale<<<rows, 128>>>(out, x, rows, n, 2), 0);\n}\n",
            "app.cu:12: this launch of scale stays: it is part of an expression. To replace",
        ),
        (
            HOST + "  scale<<<rows, 128>>>(out, x, rows, n);\n}\n",
            "app.cu:12: this launch of scale stays: it has 4 arguments. To replace",
        ),
        (
            HOST + "  scale<<<rows, 128>>>(out, x,\n#ifdef A\nrows, n, 2);\n#endif\n}\n",
            "app.cu:12: this launch of scale stays: there are preprocessor directives in it. To",
        ),
        (
            HOST + "  cudaLaunchKernel((void*)scale, rows, 128, arguments, 0, stream);\n}\n",
            "app.cu:12: this launch of scale stays: it is made by a call of the runtime. To",
        ),
        ("", "app.cu: no launch scale<<<…>>> was found; where it is, call scale_tuned(grid,"),
    ],
)
def test_a_launch_that_cannot_be_replaced_is_said_with_what_to_write(host, said):
    text = f"#include <cuda_runtime.h>\n\n{KERNEL}\n{host}"
    notes = notes_of(text)
    assert any(note.startswith(said) for note in notes), notes


def test_a_launch_before_the_kernel_stays():
    declared = "__global__ void scale(float* out, const float* x, int rows, int n, float by);\n"
    host = HOST + "  scale<<<rows, 128>>>(out, x, rows, n, 2);\n}\n"
    notes = notes_of(declared + host + KERNEL)
    assert "app.cu:3: this launch of scale stays: it stands before the end" in notes[0]


def test_a_size_that_no_launch_tells_is_asked_for():
    one = experiment(launch=Launch(grid=(parse("ceil_div(rows, 4)"),), block=(parse(128),)))
    arguments = tuple(
        replace(a, value=parse("rows // 4")) if a.name == "rows" else a for a in one.arguments
    )
    application = applied(history=run_of(replace(one, arguments=arguments)))
    assert application.notes[0].startswith(
        "app.cu:14: this launch of scale stays: it does not say the size rows. To replace it by "
        "hand, write scale_tuned(/* rows */, rows, BLOCK, 0, stream, out, x, rows, n, 2.0f);"
    )
    assert "static inline void scale_tuned(long long kw_rows, dim3" in after(application)["app.cu"]


def test_what_apply_cannot_do_is_said_by_name():
    one = experiment()
    slow = finished_run(one, cuda_device(90), [100.0] * 3, [({"BLOCK": 64}, [150.0] * 3)])
    with pytest.raises(NothingValid, match="the original kernel serves every shape"):
        applied(history=slow)
    constant = Argument(
        name="c", kind="constant", dtype="float32", shape=(parse(3),), symbol="c_factors"
    )
    with pytest.raises(SpecError, match="the kernel reads the constant c_factors"):
        applied(history=run_of(replace(one, arguments=(*one.arguments, constant))))
    launches = (one.kernel.launch, one.kernel.launch)
    sequence = replace(one, kernel=replace(one.kernel, launch=None, launches=launches))
    with pytest.raises(SpecError, match="the run tuned 2 launches and memsets as one"):
        applied(history=run_of(sequence))
    twice = APPLICATION.replace(KERNEL, f"#if A\n{KERNEL}#else\n{KERNEL}#endif\n")
    with pytest.raises(SpecError, match=r"app\.cu:8: the kernel 'scale' is defined 2 times"):
        applied(twice)
