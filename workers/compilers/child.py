"""The compile process: ``python -m workers.compilers.child ADAPTER OPENING``.

One build in, one result out. No candidate code runs here, but a compiler may crash or hang on it.
Reports that it is ready once the compiler is, which takes as long as a few compiles.
"""

import os
from pathlib import Path

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.plan import Build
from workers.backends.port import BackendAdapter
from workers.backends.registry import load
from workers.channel import ChannelClosed
from workers.compilers.cache import CachedCompiler
from workers.compilers.port import Compiler
from workers.compilers.protocol import (
    CompilerUnavailable,
    Result,
    decode_build,
    decode_opening,
    encode_result,
)
from workers.process import serve_as_child

_NICENESS = 10
"""All cores compile, but a device that is timing must not wait for one."""


def _open(adapter: BackendAdapter, device: Device, cache: Path | None) -> Compiler:
    compiler = adapter.open_compiler(device)
    compiler.compile(
        Build(
            language=device.backend,
            file="nothing",
            source=adapter.empty_kernel,
            entries=("nothing",),
        )
    )
    if cache is None or compiler.fingerprint is None:
        return compiler
    return CachedCompiler(compiler, cache, compiler.fingerprint)


def _opened(module: str, device: Device, cache: Path | None) -> Compiler | CompilerUnavailable:
    try:
        return _open(load(module), device, cache)
    except EnvironmentProblem as problem:
        return CompilerUnavailable(str(problem))


def _compiled(compiler: Compiler | CompilerUnavailable, build: Build) -> Result:
    if isinstance(compiler, CompilerUnavailable):
        return compiler
    try:
        return compiler.compile(build)
    except EnvironmentProblem as problem:
        return CompilerUnavailable(str(problem))


def main() -> None:
    """Serve until the channel closes."""
    channel, (module, opening) = serve_as_child()
    os.nice(_NICENESS)
    compiler = _opened(module, *decode_opening(opening))
    channel.send(b"ready")
    while True:
        try:
            text, _ = channel.receive(0)
        except ChannelClosed:
            return
        channel.send(*encode_result(_compiled(compiler, decode_build(text))))


if __name__ == "__main__":
    main()
