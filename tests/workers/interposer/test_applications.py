"""``profile`` and ``capture`` of real processes that use the stand-in driver."""

import json
import stat
import subprocess
from pathlib import Path

import pytest
import typer

from cluster.commands.applications import capture, profile
from tuner.errors import EnvironmentProblem, NothingValid, SpecError
from workers.interposer.recording import read_buffer, read_image, read_recording

SILU, SCALE = "_Z4siluPKfPfi", "_Z5scale3boxfi"
ALL = ("eager", "packed", "graph", "recorded")


def plain(argv):
    """What the application prints without anything loaded into it."""
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def profiled(argv, capfd):
    """The JSON document of a profile, and what the application printed."""
    profile(argv, as_json=True)
    out, err = capfd.readouterr()
    return json.loads(out), err


def captured(argv, kernel="silu", output=Path("taken"), max_mib=64, max_shapes=8):
    capture(argv, kernel=kernel, output=output, max_mib=max_mib, max_shapes=max_shapes)
    return read_recording(output)


def counts(document, kernel):
    [found] = [one for one in document["kernels"] if one["name"] == kernel]
    return {
        shape["scalars"]["2"]: (shape["eager"], shape["in_graphs"]) for shape in found["shapes"]
    }


def of_elements(recording, n):
    [launch] = [
        one for one in recording.launches if one.arguments[2] == n.to_bytes(4, "little").hex()
    ]
    return launch


@pytest.mark.parametrize("linked", ["gpa", "dlsym", "plt"])
def test_a_profile_counts_every_launch_by_shape_however_the_driver_is_found(rig, capfd, linked):
    argv = rig.app(*ALL, linked=linked)
    expected = plain(argv)
    document, printed = profiled(argv, capfd)
    assert printed == expected
    assert counts(document, SILU) == {
        1000: (5, 0),
        4096: (3, 0),
        50000: (2, 0),
        777: (1, 0),
        7000: (0, 4),
        5000: (0, 3),
    }
    assert counts(document, SCALE) == {
        1000: (5, 0),
        4096: (3, 0),
        50000: (2, 0),
        7000: (0, 8),
        5000: (0, 3),
    }
    assert sum(kernel["share"] for kernel in document["kernels"]) == pytest.approx(1.0)
    for kernel in document["kernels"]:
        assert all(shape["timed"] and shape["mean_ns"] > 0 for shape in kernel["shapes"])


@pytest.mark.parametrize(
    "variables", [["AS_LIBRARY"], ["AS_LIBRARY", "ENUMERATED"], ["PER_THREAD_STREAM"]]
)
def test_libraries_and_per_thread_streams_are_seen(rig, capfd, monkeypatch, variables):
    for variable in variables:
        monkeypatch.setenv(variable, "1")
    argv = rig.app(*ALL)
    expected = plain(argv)
    document, printed = profiled(argv, capfd)
    assert printed == expected
    assert counts(document, SILU)[7000] == (0, 4)


def test_changed_nodes_of_a_graph_are_followed(rig, capfd):
    document, _ = profiled(rig.app("updated"), capfd)
    assert counts(document, SILU) == {7000: (0, 2), 6000: (0, 2)}


def test_the_table_fits_80_columns_and_names_kernels_for_people(rig, capfd):
    profile(rig.app(*ALL), as_json=False)
    out = capfd.readouterr().out
    lines = out[out.index("kernel ") :].splitlines()
    assert all(len(line) <= 80 for line in lines)
    rows = sorted(line.split()[:3] for line in lines[1:] if line[0] != " ")
    assert rows == [["scale", "21", "11"], ["silu", "18", "7"]]
    assert any("p1=1.25 p2=7000" in line for line in lines)


def test_a_capture_has_arguments_memory_and_image_of_each_shape(rig, capfd):
    argv = rig.app(*ALL)
    expected = plain(argv)
    recording = captured(argv)
    assert capfd.readouterr().out.startswith(expected)
    assert [launch.captured for launch in recording.launches] == [True] * 6
    [kernel] = recording.kernels
    assert kernel.name == SILU
    assert [(p.offset, p.size) for p in kernel.parameters] == [(0, 8), (8, 8), (16, 4)]
    assert kernel.image is not None
    assert read_image(Path("taken"), kernel.image) == rig.kernels.read_bytes()
    launch = of_elements(recording, 4096)
    assert (launch.grid, launch.block, launch.eager) == ((16, 1, 1), (256, 1, 1), 3)
    [buffer] = launch.buffers  # both tensors are in one allocation
    assert (buffer.size, buffer.truncated) == ((1 << 20) - 4096, False)
    assert [(p.parameter, p.at, p.offset) for p in launch.pointers] == [(0, 0, 0), (1, 0, 520192)]
    before = read_buffer(Path("taken"), buffer, buffer.before)
    after = read_buffer(Path("taken"), buffer, buffer.after)
    assert before[: 4096 * 4] == after[: 4096 * 4]
    assert before[520192:][: 4096 * 4] != after[520192:][: 4096 * 4]
    assert before[520192 + 4096 * 4 :] == after[520192 + 4096 * 4 :]


def test_a_launch_in_a_graph_is_captured_at_its_place_in_the_graph(rig, capfd):
    recording = captured(rig.app("graph"))
    launch = of_elements(recording, 7000)
    assert (launch.from_graph, launch.eager, launch.in_graphs) == (True, 0, 4)
    [buffer] = launch.buffers
    before = read_buffer(Path("taken"), buffer, buffer.before)
    scaled = captured(rig.app("graph"), kernel="scale", output=Path("scaled"))
    first = next(one for one in scaled.launches if one.captured)
    after_first = read_buffer(Path("scaled"), first.buffers[0], first.buffers[0].after)
    assert before[: 7000 * 4] == after_first[: 7000 * 4]


def test_an_argument_in_a_struct_is_a_pointer_to_its_buffer(rig):
    recording = captured(rig.app("eager"), kernel="*scale*", max_shapes=1)
    assert [launch.captured for launch in recording.launches] == [True, False, False]
    assert [(p.parameter, p.at) for p in recording.launches[0].pointers] == [(0, 0)]
    assert len(recording.launches[0].arguments[0]) == 32


def test_an_image_of_a_compiled_in_fatbin_is_recorded(rig, monkeypatch):
    monkeypatch.setenv("AS_LIBRARY", "1")
    for kernel in ("silu", "scale"):
        recording = captured(rig.app("eager"), kernel=kernel, output=Path(kernel))
        image = recording.kernels[0].image
        assert image is not None
        assert image.kind == "fatbin"
        assert read_image(Path(kernel), image)[16:] == rig.kernels.read_bytes()


def test_what_is_beyond_the_limit_is_left_out_and_said(rig, capfd, monkeypatch):
    monkeypatch.setenv("POOL_MIB", "4")
    recording = captured(rig.app("eager"), max_mib=1)
    buffers = recording.launches[0].buffers
    assert [buffer.size for buffer in buffers] == [1 << 20, 1 << 20]
    assert all(buffer.truncated for buffer in buffers)
    assert "buffers cut at 1 MiB; raise --max-mib" in capfd.readouterr().err


def test_a_capture_is_readable_by_its_owner_only(rig):
    captured(rig.app("eager"), max_shapes=1)
    for path in (Path("taken"), *Path("taken").rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_an_existing_folder_is_not_written_to(rig):
    Path("taken").mkdir()
    with pytest.raises(SpecError, match="taken exists: name a new folder with -o"):
        captured(rig.app("eager"))
    assert list(Path().iterdir()) == [Path("taken")]


def test_a_kernel_that_is_never_launched_is_told_with_the_nearest_names(rig):
    with pytest.raises(NothingValid, match="no kernel named sliu; the nearest names are silu"):
        captured(rig.app("eager"), kernel="sliu")
    assert not list(Path().iterdir())


@pytest.mark.parametrize(("ending", "status"), [("crash", 134), ("exit", 7)])
def test_the_exit_status_of_the_application_is_passed_on(rig, capfd, ending, status):
    with pytest.raises(typer.Exit) as ended:
        profile(rig.app("eager", ending), as_json=True)
    assert ended.value.exit_code == status
    document = json.loads(capfd.readouterr().out)
    assert counts(document, SILU)[1000] == (5, 0)
    with pytest.raises(typer.Exit) as ended:
        captured(rig.app("eager", ending))
    assert ended.value.exit_code == status
    recording = read_recording(Path("taken"))
    assert [launch.captured for launch in recording.launches] == [True] * 3
    assert recording.application.exit_code == (-6 if status == 134 else 7)


def test_a_forked_child_records_for_itself(rig, capfd):
    document, printed = profiled(rig.app("eager", "fork"), capfd)
    assert "2 processes used CUDA" in printed
    assert counts(document, SILU)[2000] == (4, 0)
    recording = captured(rig.app("eager", "fork"))
    assert all(launch.arguments[2] != "d0070000" for launch in recording.launches)
    assert "kept what process" in capfd.readouterr().err


def test_a_process_without_cuda_is_left_alone(rig):
    with pytest.raises(NothingValid, match="the application did not use CUDA"):
        profile(["true"], as_json=False)
    with pytest.raises(NothingValid, match="used CUDA, but launched no kernel"):
        profile(rig.app(), as_json=False)


def test_lookups_elsewhere_are_as_without_the_library(rig, capfd):
    argv = [str(rig.folder / "next_symbol"), str(rig.folder / "forwarder.so")]
    assert plain(argv) == "111111\n"
    with pytest.raises(NothingValid):
        profile(argv, as_json=False)
    assert capfd.readouterr().out == "111111\n"


def test_a_refused_launch_is_the_applications_to_handle(rig, capfd):
    argv = rig.app("refused", "eager")
    expected = plain(argv)
    captured(argv)
    out, err = capfd.readouterr()
    assert out.startswith(expected)
    assert "silu: not captured: the launch failed with driver error 1" in err


def test_textures_are_refused_by_name(rig, capfd):
    with pytest.raises(NothingValid, match="no launch of sample was captured"):
        captured(rig.app("texture"), kernel="sample")
    assert "sample: not captured: parameter 0 is a texture or surface" in capfd.readouterr().err
    assert not list(Path().iterdir())


def test_pointers_inside_device_memory_are_noted(rig, capfd):
    recording = captured(rig.app("gather"), kernel="gather")
    assert recording.launches[0].notes == ("2 device pointers inside its memory",)
    assert "a replay is incomplete: 2 device pointers" in capfd.readouterr().err


def test_another_profiler_is_named_before_the_application_starts(rig, monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/profiler.so")
    with pytest.raises(EnvironmentProblem, match="another profiler observes CUDA"):
        profile(["touch", "started"], as_json=False)
    assert not Path("started").exists()


def test_libraries_that_are_loaded_already_stay_first(rig, monkeypatch, capfd):
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6")
    with pytest.raises(NothingValid):
        profile(["sh", "-c", "echo $LD_PRELOAD"], as_json=False)
    assert capfd.readouterr().out.startswith(f"libm.so.6:{rig.cache}/kernelwright/interposer-")


def test_a_command_that_does_not_exist_is_named(rig):
    with pytest.raises(SpecError, match=r"./missing: cannot be run \(No such file"):
        profile(["./missing"], as_json=False)


def test_without_a_compiler_the_remedy_is_said(rig, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvironmentProblem, match="no C compiler 'cc' on PATH: install one"):
        profile(["/bin/true"], as_json=False)
