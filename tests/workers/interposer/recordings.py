"""Capture directories written by hand, for tests that need no application."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from workers.interposer.recording import (
    BUFFERS,
    FILE,
    IMAGES,
    RECORDING,
    Application,
    Attributes,
    Buffer,
    Image,
    Launch,
    Parameter,
    Pointer,
    RecordedDevice,
    RecordedKernel,
    Recording,
)

BASE = 0x7F0000000000
"""Address of the first buffer."""


def store(folder: Path, content: bytes) -> str:
    """Store a file by its content; return its digest."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256(content).hexdigest()
    path = folder / digest
    path.write_bytes(content)
    path.chmod(0o600)
    return digest


def captured_launch(
    folder: Path,
    arguments: Sequence[bytes | tuple[bytes, bytes]],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (64, 1, 1),
    eager: int = 1,
    in_graphs: int = 0,
) -> Launch:
    """A launch of kernel 0; an argument is a scalar's bytes, or a buffer's before and after."""
    raw: list[str] = []
    pointers: list[Pointer] = []
    buffers: list[Buffer] = []
    for index, argument in enumerate(arguments):
        if isinstance(argument, bytes):
            raw.append(argument.hex())
            continue
        before, after = argument
        address = BASE + (len(buffers) << 32)
        pointers.append(Pointer(parameter=index, at=0, buffer=len(buffers), offset=0))
        buffers.append(
            Buffer(
                address=address,
                size=len(before),
                allocation_address=address,
                allocation_size=len(before),
                before=store(folder / BUFFERS, before),
                after=store(folder / BUFFERS, after),
                truncated=False,
            )
        )
        raw.append(address.to_bytes(8, "little").hex())
    return Launch(
        kernel=0,
        grid=grid,
        block=block,
        shared_bytes=0,
        cooperative=False,
        cluster=None,
        eager=eager,
        in_graphs=in_graphs,
        arguments=tuple(raw),
        captured=True,
        from_graph=False,
        pointers=tuple(pointers),
        buffers=tuple(buffers),
    )


def write_recording(
    folder: Path,
    launches: Sequence[Launch],
    *,
    name: str = "_Z5scalePKfPfi",
    image: bytes = b"\x7fELF",
    kind: str = "cubin",
    attributes: Mapping[str, int] | None = None,
) -> Recording:
    """Write ``capture.json`` and the image of a kernel with these launches."""
    parameters: list[Parameter] = []
    end = 0
    for size in (len(argument) // 2 for argument in launches[0].arguments):
        offset = -(-end // min(size, 8)) * min(size, 8)
        parameters.append(Parameter(offset=offset, size=size))
        end = offset + size
    digest = store(folder / IMAGES, image)
    limits = {
        "registers": 16,
        "static_shared_bytes": 0,
        "max_dynamic_shared_bytes": 0,
        "local_bytes": 0,
        "constant_bytes": 0,
        "max_threads_per_block": 1024,
        **(attributes or {}),
    }
    kernel = RecordedKernel(
        name=name,
        image=Image(sha256=digest, kind=kind, size=len(image)),
        parameters=tuple(parameters),
        attributes=Attributes(**limits),
    )
    recording = Recording(
        format=1,
        application=Application(argv=("./app",), directory="/", pid=1, exit_code=0),
        device=RecordedDevice(name="Stand-in", compute_capability=90, driver=13000),
        kernels=(kernel,),
        launches=tuple(launches),
    )
    (folder / FILE).write_bytes(RECORDING.dump_json(recording, indent=1))
    return recording
