"""The compile process: ``python -m workers.compilers.child``; one build in, one result out.

Runs the compiler and nothing else; no candidate code runs here, but a compiler may crash or hang on
it. Says that it is ready once the compiler is, which takes as long as a few compiles.
"""

import os
from pathlib import Path

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.plan import Build
from workers.compilers.cache import CachedCompiler
from workers.compilers.port import Compiler
from workers.compilers.protocol import (
    Problem,
    Result,
    decode_build,
    decode_opening,
    encode_result,
)
from workers.process import ChannelClosed, serve_as_child

_NICENESS = 10
"""Whoever times a candidate goes first: all cores compile, and a device must not wait for one."""

_NOTHING = {"cuda": "__global__ void nothing() {}", "opencl": "kernel void nothing() {}"}


def _open(device: Device, cache: Path | None) -> Compiler:
    nothing = Build(
        language=device.backend,
        file="nothing",
        source=_NOTHING[device.backend],
        entries=("nothing",),
    )
    if device.backend == "cuda":
        from workers.backends.cuda import compiler as nvrtc

        compiler = nvrtc.open_compiler(device)
        compiler.compile(nothing)
        return CachedCompiler(compiler, cache, compiler.fingerprint) if cache else compiler
    from workers.backends.opencl import compiler as opencl

    opened = opencl.open_compiler(device)
    opened.compile(nothing)
    return opened


def _opened(device: Device, cache: Path | None) -> Compiler | Problem:
    try:
        return _open(device, cache)
    except EnvironmentProblem as problem:
        return Problem(str(problem))


def _compiled(compiler: Compiler | Problem, build: Build) -> Result:
    if isinstance(compiler, Problem):
        return compiler
    try:
        return compiler.compile(build)
    except EnvironmentProblem as problem:
        return Problem(str(problem))


def main() -> None:
    """Serve until the channel closes."""
    channel, (opening,) = serve_as_child()
    os.nice(_NICENESS)
    compiler = _opened(*decode_opening(opening))
    channel.send(b"ready")
    while True:
        try:
            text, _ = channel.receive(0)
        except ChannelClosed:
            return
        channel.send(*encode_result(_compiled(compiler, decode_build(text))))


if __name__ == "__main__":
    main()
