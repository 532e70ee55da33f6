"""``init --capture``: a draft spec for a captured kernel, whose launches are replayed."""

import io
import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from cluster.cli.console import Show, display, say
from cluster.fleets.local import choose
from tuner.csource.mangling import base_name, source_name
from tuner.drafts.captured_spec import CapturedDraft, DataFile, Surroundings, captured_spec
from tuner.drafts.draft_spec import guesses_left, unread_guesses
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.source_build import source_build
from tuner.expressions import nearest
from workers.backends.cuda.image import narrowed
from workers.devices.discover import list_devices
from workers.elements import is_float, numpy_dtype
from workers.interposer.recording import (
    IMAGES,
    Launch,
    Recording,
    check_not_link,
    read_image,
    read_recording,
)
from workers.replay.derive import Open, captured_launches, contents, derive
from workers.replay.process import ReplayProcess

_BACKEND = "cuda"
_SPEC = "spec.yaml"
_LARGE_BYTES = 1 << 20
DATA, AFTER = "data", "after"
"""Folders of a capture: the arrays of a draft, and in it the results to compare with."""


def draft_capture(
    folder: Path,
    source: Path | None,
    *,
    entry: str | None,
    output: Path | None,
    commands: Path | None,
    include: Sequence[Path],
    device: str | None,
) -> None:
    """Write a draft spec for a kernel of a capture, and the arrays that it names beside it.

    Raises:
        SpecError: the capture or the source cannot be used, one of its folders is a link, or the
            output exists.
        EnvironmentProblem: the asked device is not there, or the output cannot be written.
    """
    recording = read_recording(folder)
    kernel = _chosen(recording, entry)
    spec = output or folder / _SPEC
    if spec.exists():
        raise SpecError(f"{spec} exists already: delete it, or name another file with --output")
    for written in (IMAGES, DATA, f"{DATA}/{AFTER}"):
        check_not_link(folder / written)
    built = None
    if source is not None:
        built = source_build(source, spec.parent, commands=commands, include=include)
    with display() as show:
        facts = derive(folder, recording, kernel, _opener(device, show), show)
    binary = _binary(folder, recording, kernel)
    around = Surroundings(
        binary=os.path.relpath(binary, spec.parent) if binary else None,
        data=os.path.relpath(folder / DATA, spec.parent),
        source=built,
    )
    draft = captured_spec(facts, around)
    _write(folder, spec, draft, captured_launches(recording, kernel))
    left = unread_guesses(draft.text)
    say(f"wrote {spec}; {guesses_left(left)}")
    if source is None:
        say("give the kernel's source in it, then run it")


def _chosen(recording: Recording, entry: str | None) -> int:
    """The kernel that is meant: the most launched of those that fit."""
    names = [kernel.name for kernel in recording.kernels]
    counts = [0] * len(names)
    for launch in recording.launches:
        counts[launch.kernel] += launch.eager + launch.in_graphs
    fitting = [
        index
        for index, name in enumerate(names)
        if entry is None or entry in (name, base_name(name)) or entry in source_name(name)
    ]
    if not fitting:
        known = [source_name(name) for name in names]
        hint = nearest(entry or "", known) or f"; there are: {', '.join(known)}"
        raise SpecError(f"--entry: the capture has no kernel '{entry}'{hint}")
    best = max(fitting, key=lambda index: counts[index])
    if len(fitting) > 1:
        others = ", ".join(source_name(names[index]) for index in fitting if index != best)
        chosen = source_name(names[best])
        say(f"took {chosen}; choose another by --entry: {others}")
    return best


def _binary(folder: Path, recording: Recording, kernel: int) -> Path | None:
    """The image of a kernel; of a large one that has code for many devices, the part for this."""
    image = recording.kernels[kernel].image
    if image is None:
        return None
    path = folder / IMAGES / image.sha256
    if image.size <= _LARGE_BYTES:
        return path
    held = read_image(folder, image)
    part = narrowed(held, recording.device.compute_capability)
    if part == held:
        return path
    narrow = path.with_name(f"{image.sha256}-{recording.device.compute_capability}")
    _write_private(narrow, part)
    return narrow


def _opener(wanted: str | None, show: Show) -> Open | None:
    """Opens replays on a device of this machine; ``None`` where there is none."""
    try:
        _, indices = choose(list_devices((_BACKEND,)), _BACKEND, wanted)
    except EnvironmentProblem as problem:
        if wanted is not None:
            raise
        show(f"not replayed, so that more is guessed: {problem}")
        return None
    return partial(ReplayProcess, _BACKEND, indices[0])


def _write(folder: Path, spec: Path, draft: CapturedDraft, launches: Sequence[Launch]) -> None:
    """Write the arrays, readable by their owner only as all of a capture, then the spec."""
    try:
        for data in (folder / DATA, folder / DATA / AFTER):
            data.mkdir(mode=0o700, exist_ok=True)
        for file in draft.files:
            place = folder / DATA / (AFTER if file.after else "") / Path(file.name).name
            _write_array(folder, place, file, launches)
        with closing(spec.open("x", encoding="utf-8")) as stream:
            stream.write(draft.text)
    except OSError as error:
        raise EnvironmentProblem(
            f"{error.filename or spec} cannot be written ({error.strerror}); free space, or name "
            "another file with --output"
        ) from error


def _write_array(folder: Path, path: Path, file: DataFile, launches: Sequence[Launch]) -> None:
    """One array; types that NumPy files do not know are widened, which is exact."""
    dtype = numpy_dtype(file.dtype)
    size = file.elements * dtype.itemsize
    held = contents(folder, launches[file.shape], file.parameter, size, after=file.after)
    values = np.frombuffer(held.ljust(size, b"\0"), dtype)
    if is_float(file.dtype) and dtype.kind != "f":
        values = values.astype(np.float32)
    stream = io.BytesIO()
    np.save(stream, values)
    _write_private(path, stream.getvalue())


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone can read, in place of an earlier one."""
    try:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be written ({error.strerror})") from error
