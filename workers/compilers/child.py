"""The compile process. Its arguments are the adapter and an encoded opening.

One build in, one result out. No candidate code runs here, but a compiler may crash or hang on it.
Reports that it is ready once the compiler is, which takes as long as a few compiles.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.plan import Build
from workers.backends.port import BackendAdapter
from workers.backends.registry import load
from workers.channel import Channel, ChannelClosed
from workers.compilers.cache import CachedCompiler
from workers.compilers.port import Compiler
from workers.compilers.protocol import (
    BUILD,
    OPENING,
    CompilerUnavailable,
    Result,
    encode_result,
)
from workers.heap import keep_freed_memory

_NICENESS = 10
"""All cores compile, but a device that is timing must not wait for one."""

_KEPT_BYTES, _HEAP_BYTES = 64 << 20, 32 << 20
"""Freed memory that is kept, and the largest allocations from it; a compile takes a few MiB.

It spares each compile two thousand page faults, a fifteenth of its time."""


def _opened(
    adapter: BackendAdapter, device: Device, cache: Path | None
) -> Compiler | CompilerUnavailable:
    source, entries = adapter.empty_kernel, ("nothing",)
    try:
        compiler = adapter.open_compiler(device)
        compiler.compile(
            Build(language=device.backend, file="nothing", source=source, entries=entries)
        )
    except EnvironmentProblem as problem:
        return CompilerUnavailable(str(problem))
    if cache is None or compiler.fingerprint is None:
        return compiler
    return CachedCompiler(compiler, cache, compiler.fingerprint)


def _compiled(compiler: Compiler | CompilerUnavailable, build: Build) -> Result:
    if isinstance(compiler, CompilerUnavailable):
        return compiler
    try:
        return compiler.compile(build)
    except EnvironmentProblem as problem:
        return CompilerUnavailable(str(problem))


def main(channel: Channel, arguments: Sequence[str]) -> None:
    """Serve until the channel closes."""
    module, opening = arguments
    os.nice(_NICENESS)
    keep_freed_memory(_KEPT_BYTES, _HEAP_BYTES)
    compiler = _opened(load(module), *OPENING.validate_json(opening))
    channel.send(b"ready")
    while True:
        try:
            text, _ = channel.receive(0)
        except ChannelClosed:
            return
        channel.send(*encode_result(_compiled(compiler, BUILD.validate_json(text))))
