"""The compile process: ``python -m workers.compilers.child``; one build in, one result out.

Runs the compiler and nothing else; no candidate code runs here, but a compiler may crash or hang on
it.
"""

from pathlib import Path

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from workers.compilers.cache import CachedCompiler
from workers.compilers.port import Compiler
from workers.compilers.protocol import Problem, Result, decode_job, encode_result
from workers.process import ChannelClosed, serve_as_child


def _open(device: Device, cache: Path | None) -> Compiler:
    if device.backend == "cuda":
        from workers.compilers import nvrtc

        compiler = nvrtc.open_compiler(device)
        return CachedCompiler(compiler, cache, compiler.fingerprint) if cache else compiler
    from workers.compilers import opencl

    return opencl.open_compiler(device)


def main() -> None:
    """Serve until the channel closes."""
    channel, _ = serve_as_child()
    channel.send(b"ready")
    compilers: dict[Device, Compiler] = {}
    while True:
        try:
            text, _ = channel.receive(0)
        except ChannelClosed:
            return
        device, build, cache = decode_job(text)
        result: Result
        try:
            if device not in compilers:
                compilers[device] = _open(device, cache)
            result = compilers[device].compile(build)
        except EnvironmentProblem as problem:
            result = Problem(str(problem))
        channel.send(*encode_result(result))


if __name__ == "__main__":
    main()
