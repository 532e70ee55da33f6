"""``profile`` and ``capture``: what a running, unmodified application launches on the GPU."""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from cluster.cli.console import say
from tuner.errors import EnvironmentProblem, NothingValid, SpecError
from tuner.printable import counted
from tuner.report.text import time_text
from workers.interposer.application import Ended, InterposerSettings, run_application
from workers.interposer.assembly import (
    assemble,
    capture_folder,
    device_launching,
    matching_kernels,
)
from workers.interposer.names import mangled_part, nearest_names, readable_name
from workers.interposer.profile import KernelProfile, ShapeProfile, profile_of
from workers.interposer.recording import Extent, Launch, Recording
from workers.interposer.trace import Trace, read_traces

_WIDTH = 80
_SHAPES_SHOWN = 3
_STDERR = 2
_WORD = 4
_LIKELY_INTEGER = 1 << 26


def profile(application: list[str], *, as_json: bool) -> None:
    """Run an application and print its kernels."""
    with recording_folder() as folder:
        ended = run_application(
            application,
            InterposerSettings(mode="profile"),
            folder,
            stdout=_STDERR if as_json else None,
        )
        traces = read_traces(folder)
    kernels = profile_of(traces)
    tell(ended, traces)
    if kernels and as_json:
        typer.echo(json.dumps(_document(ended, kernels), indent=2))
    elif kernels:
        typer.echo("\n".join(_table(kernels)))
    end(ended, "" if kernels else _nothing_launched(traces))


def capture(
    application: list[str], *, kernel: str, output: Path | None, max_mib: int, max_shapes: int
) -> None:
    """Run an application and record launches of one kernel."""
    if not kernel.strip():
        raise SpecError("--kernel: name a kernel, or part of its name")
    stem = "".join(c if c.isalnum() or c in "_-" else "_" for c in readable_name(kernel))
    settings = InterposerSettings(
        mode="capture", kernel=mangled_part(kernel), bytes=max_mib << 20, shapes=max_shapes
    )
    with capture_folder(output or Path("captures") / stem) as folder:
        ended = run_application(application, settings, folder.raw)
        traces = read_traces(folder.raw)
        tell(ended, traces)
        trace = _captured_process(ended, traces)
        if trace is None:
            end(ended, _nothing_captured(kernel, traces))
            return
        recording = assemble(folder, trace, ended, kernel)
        for name in device_launching(folder.part, recording):
            say(
                f"{readable_name(name)}: its module launches kernels from the device; a replay "
                "may miss them"
            )
        folder.finish()
    _say_truncated(recording, max_mib)
    typer.echo("\n".join(_captures(recording, folder.final)))
    end(ended, "")


@contextmanager
def recording_folder() -> Iterator[Path]:
    """A private folder that is removed afterwards."""
    try:
        with TemporaryDirectory(prefix="kernelwright-profile-") as folder:
            yield Path(folder)
    except OSError as error:
        raise EnvironmentProblem(f"no temporary folder can be used: {error}") from error


def tell(ended: Ended, traces: Sequence[Trace]) -> None:
    """Say what was noted, and how the application ended if it failed."""
    for note in dict.fromkeys(note for trace in traces for note in trace.notes):
        about = f"{readable_name(note.about)}: " if note.about else ""
        say(about + note.note)
    if ended.exit_code < 0:
        say(f"the application was ended by signal {-ended.exit_code}")
    elif ended.exit_code:
        say(f"the application ended with exit code {ended.exit_code}")
    if len(traces) > 1:
        say(f"{len(traces)} processes used CUDA")


def end(ended: Ended, problem: str) -> None:
    """Pass the application's exit status on; if it is 0, raise for a problem."""
    if problem and ended.exit_code == 0:
        raise NothingValid(problem)
    if problem:
        say(f"error: {problem}")
    if ended.status:
        raise typer.Exit(ended.status)


def _nothing_launched(traces: Sequence[Trace]) -> str:
    if not traces:
        return (
            "the application did not use CUDA: no process of it loaded libcuda.so.1 and called it "
            "(not seen are statically linked programs, and processes with other privileges or in a "
            "container; 'kernelwright doctor' says whether this machine has an NVIDIA driver)"
        )
    return "the application used CUDA, but launched no kernel"


def _captured_process(ended: Ended, traces: Sequence[Trace]) -> Trace | None:
    """The process to keep: the application's own if it captured anything, else that with most."""
    capturing = [trace for trace in traces if trace.captures]
    if not capturing:
        return None
    kept = max(capturing, key=lambda trace: (trace.pid == ended.pid, len(trace.captures)))
    if len(capturing) > 1:
        say(f"kept what process {kept.pid} recorded, of {len(capturing)} processes")
    return kept


def _nothing_captured(kernel: str, traces: Sequence[Trace]) -> str:
    names = sorted({kernel.name for trace in traces for kernel in trace.kernels.values()})
    if not names:
        return _nothing_launched(traces)
    if any(matching_kernels(kernel, trace) for trace in traces):
        return f"no launch of {kernel} was captured"
    near = nearest_names(kernel, names)
    shown = near or names[:8]
    what = "the nearest names are" if near else "it launched"
    more = f" and {len(names) - len(shown)} others" if not near and len(names) > len(shown) else ""
    return f"the application launched no kernel named {kernel}; {what} {', '.join(shown)}{more}"


def _say_truncated(recording: Recording, max_mib: int) -> None:
    truncated = sum(buffer.truncated for launch in recording.launches for buffer in launch.buffers)
    if truncated:
        say(f"{counted(truncated, 'buffer')} cut at {max_mib} MiB; raise --max-mib to keep all")
    for note in dict.fromkeys(note for launch in recording.launches for note in launch.notes):
        say(f"a replay is incomplete: {note}")


def _captures(recording: Recording, folder: Path) -> Iterator[str]:
    captured = [launch for launch in recording.launches if launch.captured]
    size = sum(buffer.size for launch in captured for buffer in launch.buffers)
    yield f"captured {len(captured)} of {len(recording.launches)} shapes, {size >> 20} MiB each way"
    for launch in recording.launches:
        name = readable_name(recording.kernels[launch.kernel].name)
        shape = _launch(launch.grid, launch.block, launch.shared_bytes)
        where = "in a graph" if launch.from_graph else "eager"
        done = f"captured ({where})" if launch.captured else "counted only"
        yield _fitted(
            f"  {name} {shape} {_scalars(_words(launch))}",
            f"{launch.eager + launch.in_graphs} ×, {done}",
        )
    yield f"written to {folder} (readable by you only; it may hold secrets of the application)"
    yield f"next: kernelwright init SOURCE.cu --capture {folder}"


def _table(kernels: Sequence[KernelProfile]) -> Iterator[str]:
    yield _row("kernel", "launches", "in graphs", "GPU time", "share")
    for kernel in kernels:
        time = time_text(kernel.total_ns) if kernel.total_ns else "-"
        share = f"{kernel.share:.1%}" if kernel.total_ns else "-"
        yield _row(
            kernel.readable,
            str(kernel.eager + kernel.in_graphs),
            str(kernel.in_graphs),
            time,
            share,
        )
        for shape in kernel.shapes[:_SHAPES_SHOWN]:
            mean = f"{time_text(shape.mean_ns)} each" if shape.mean_ns else "not timed"
            yield _fitted(f"  {_described(shape)}", f"{shape.launches} × {mean}")
        if len(kernel.shapes) > _SHAPES_SHOWN:
            others = counted(len(kernel.shapes) - _SHAPES_SHOWN, "other shape")
            yield f"  … {others} (all with --json)"
        if kernel.untimed:
            untimed = counted(kernel.untimed, "launch", "launches")
            yield f"  {untimed} not timed and not in the GPU time"


def _row(name: str, *columns: str) -> str:
    widths = (9, 10, 10, 7)
    cells = "".join(f"{cell:>{width}}" for cell, width in zip(columns, widths, strict=True))
    room = _WIDTH - sum(widths)
    return f"{_shortened(name, room - 1):<{room}}{cells}"


def _fitted(left: str, right: str) -> str:
    room = _WIDTH - len(right)
    return f"{_shortened(left, room - 1):<{room}}{right}"


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _described(shape: ShapeProfile) -> str:
    return f"{_launch(shape.grid, shape.block, shape.shared_bytes)} {_scalars(shape.scalars)}"


def _words(launch: Launch) -> dict[int, int]:
    """The arguments of 4 bytes; longer ones may be pointers."""
    return {
        index: int.from_bytes(bytes.fromhex(argument), "little", signed=True)
        for index, argument in enumerate(launch.arguments)
        if len(argument) == 2 * _WORD
    }


def _scalars(values: Mapping[int, int]) -> str:
    """Arguments by their index; as a fraction if the bits are no likely integer."""
    texts = []
    for index, value in values.items():
        text = str(value)
        if _LIKELY_INTEGER < abs(value) < 1 << 31:
            fraction: float = struct.unpack("<f", struct.pack("<i", value))[0]
            text = f"{fraction:.4g}" if 1e-9 < abs(fraction) < 1e9 else text
        texts.append(f"p{index}={text}")
    return " ".join(texts)


def _launch(grid: Extent, block: Extent, shared_bytes: int) -> str:
    extents = [
        "×".join(map(str, extent[: max(i for i in (0, 1, 2) if not i or extent[i] > 1) + 1]))
        for extent in (grid, block)
    ]
    return f"<{', '.join(extents)}{f', {shared_bytes} B' if shared_bytes else ''}>"


def _document(ended: Ended, kernels: Sequence[KernelProfile]) -> dict[str, object]:
    return {
        "application": {"argv": ended.argv, "exit_code": ended.exit_code},
        "kernels": [
            {
                "name": kernel.name,
                "readable": kernel.readable,
                "eager": kernel.eager,
                "in_graphs": kernel.in_graphs,
                "total_ns": kernel.total_ns,
                "share": kernel.share,
                "untimed": kernel.untimed,
                "shapes": [asdict(shape) for shape in kernel.shapes],
            }
            for kernel in kernels
        ],
    }
