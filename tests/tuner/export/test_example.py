"""The example program of an export: compiles cleanly, and on OpenCL runs and prints the result."""

import os
import shutil
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tests.workers.loader.exports import exported
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Argument
from tuner.export.bundle import export_files

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiled(files: dict[str, str], folder: Path, *words: str) -> None:
    """Compile ``example.c`` among the files of an export, as strictly as can be."""
    for name, text in files.items():
        (folder / name).write_text(text)
    built = subprocess.run(
        ["gcc", *STRICT, "example.c", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr


def cuda_run(name: str):
    """An export of a bundled CUDA experiment, its first configuration told to be the fastest."""
    experiment = load_experiment(f"deploy/experiments/{name}.yaml")
    first = {name: values[0] for name, values in experiment.template.parameters.items()}
    count = len((*experiment.shapes.tune, *experiment.shapes.held_out))
    return finished_run(experiment, cuda_device(90), [1000.0] * count, [(first, [500.0] * count)])


def test_on_opencl_it_runs_from_the_folder_of_the_export(tmp_path):
    pyopencl = pytest.importorskip("pyopencl")
    libraries = Path(pyopencl.__file__).parent / ".libs"
    (library,) = libraries.glob("libOpenCL*.so*")
    headers = Path(__file__).parent / "opencl"
    compiled(exported(), tmp_path, f"-isystem{headers}", library)
    # Where this loader looks for drivers, and the driver for its own libraries.
    home = {"PYOPENCL_HOME": str(libraries.parent), "LD_LIBRARY_PATH": str(libraries)}
    environment = os.environ | home
    ran = subprocess.run(
        [tmp_path / "a.out", tmp_path], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "launched scale_rows_general.cl\nout[0] = 2\n", ran.stderr
    away = subprocess.run(
        [tmp_path / "a.out", "/nowhere"], capture_output=True, text=True, env=environment
    )
    assert (away.returncode, "name the folder of the export" in away.stderr) == (1, True)
    bare = subprocess.run(
        [tmp_path / "a.out", tmp_path],
        capture_output=True,
        text=True,
        env=environment | {"OCL_ICD_VENDORS": str(tmp_path / "none")},
    )
    assert (bare.returncode, "OCL_ICD_VENDORS" in bare.stderr) == (1, True)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int32", 100_000), ("int8", -128), ("int16", -2), ("int64", -(2**63)), ("uint64", 2**64 - 1)],
)
def test_integers_are_printed_as_numbers(tmp_path, dtype, value):
    pyopencl = pytest.importorskip("pyopencl")
    libraries = Path(pyopencl.__file__).parent / ".libs"
    (library,) = libraries.glob("libOpenCL*.so*")
    element = np.array([value], dtype)
    files = exported()
    program = f"""
    #define main example_main
    {files["example.c"]}
    #undef main
    int main(void) {{
        const unsigned char bytes[] = {{{", ".join(map(str, element.tobytes()))}}};
        const argument a = {{"n", 'b', '{"iu"[dtype[0] == "u"]}', {element.itemsize},
                             {element.itemsize}, {{0}}, 0}};
        print(&a, bytes);
        return 0;
    }}
    """
    headers = Path(__file__).parent / "opencl"
    compiled(files | {"example.c": program}, tmp_path, f"-isystem{headers}", library)
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries)}
    ran = subprocess.run([tmp_path / "a.out"], capture_output=True, text=True, env=environment)
    assert ran.stdout == f"n[0] = {value}\n"


def test_an_empty_shape_launches_nothing(tmp_path):
    """As the header says: the baseline is selected, and has no step to launch."""
    (tmp_path / "scale_rows.h").write_text(exported()["scale_rows.h"])
    program = """
    #include "scale_rows.h"
    int main(void) {
        const scale_rows_shape empty = {0, 64};
        scale_rows_step step;
        return scale_rows_select(&empty) != SCALE_ROWS_BASELINE
            || scale_rows_step_of(SCALE_ROWS_BASELINE, 0, &empty, &step);
    }
    """
    (tmp_path / "empty.c").write_text(program)
    subprocess.run(["gcc", "empty.c"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "a.out"], check=True)


@pytest.fixture(scope="module")
def toolkit():
    """The folder of pip's CUDA headers and libraries."""
    spec = find_spec("nvidia.cu13")
    places = [] if spec is None else [Path(one) for one in spec.submodule_search_locations or ()]
    for place in places:
        if all((place / "include" / name).is_file() for name in ("cuda.h", "nvrtc.h")):
            return place
    return pytest.skip("no CUDA headers")


@pytest.mark.parametrize("name", ["silu_and_mul/cuda", "fused_add_rmsnorm/cuda_shipped"])
def test_on_cuda_it_compiles(name, toolkit, tmp_path):
    compiled(
        export_files(cuda_run(name)), tmp_path, f"-isystem{toolkit / 'include'}", "-fsyntax-only"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["silu_and_mul/cuda_shipped", "merge_attn_states_lse/cuda"])
def test_on_cuda_nvrtc_compiles_what_it_selects(name, toolkit, tmp_path):
    """All but the driver is real: with a stand-in for that the program runs to its end."""
    # Not under the driver's own name, under which NVRTC would find it.
    stub = Path(__file__).with_name("cuda_stub.c")
    subprocess.run(["gcc", "-shared", "-fPIC", stub, "-o", tmp_path / "libstub.so"], check=True)
    (nvrtc,) = (toolkit / "lib").glob("libnvrtc.so.*")
    include = f"-isystem{toolkit / 'include'}"
    compiled(export_files(cuda_run(name)), tmp_path, include, nvrtc, f"-L{tmp_path}", "-lstub")
    environment = os.environ | {
        "CUDA_HOME": str(toolkit),
        "LD_LIBRARY_PATH": f"{toolkit / 'lib'}:{tmp_path}",
    }
    ran = subprocess.run(
        [tmp_path / "a.out", tmp_path], capture_output=True, text=True, env=environment
    )
    lines = ran.stdout.splitlines()
    assert lines[0] == f"function {name.partition('/')[0]}", ran.stderr
    assert lines[1].startswith("launched ")
    assert lines[1].endswith("_general.cu")


def test_arguments_that_it_does_not_show_leave_it_out():
    history = cuda_run("silu_and_mul/cuda")
    struct = Argument(name="pair", kind="struct", bytes="0102")
    experiment = replace(history.experiment, arguments=(*history.experiment.arguments, struct))
    history.experiment = experiment
    assert "example.c" not in export_files(history)
