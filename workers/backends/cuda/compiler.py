"""Compiles CUDA C++ to machine code through NVRTC; needs no GPU and no driver.

Owns the options of every build, the folders a source may include from, and the parsing of the
compiler's report.
"""

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tuner.csource import device_code, includes
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.integrity.include_rules import include_violation
from tuner.plan import Binary, Build, Usage
from tuner.trial import Code, Rejected, Stage
from workers.backends.cuda import image, precompiled
from workers.backends.cuda.device_program import DeviceProgram, device_program, shim_texts
from workers.backends.cuda.installation import REMEDY, cupy_problem
from workers.backends.cuda.nvcc import CompilerOutput, compile_with_nvcc
from workers.backends.cuda.precompiled import PrecompiledHeaders
from workers.backends.cuda.ptx import (
    code_of,
    lasting_variables,
    persists,
    reaches,
    shares,
    synchronises,
    variable_bytes,
)
from workers.compilers import sources
from workers.compilers.sources import compile_error

STANDARD = "--std=c++17"
"""The language standard of a build that names none."""

_NOWHERE = "/nowhere/"
"""NVRTC searches the source's folder for includes, so the source gets one that does not exist."""

_MINIMAL = "--minimal"
"""Leaves out names that few kernels use, and a fifth of the time; the code is the same."""

_BAD_SOURCE = 6
"""``NVRTC_ERROR_COMPILATION``: the candidate's fault; any other status is not."""

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def open_compiler(device: Device) -> "NvrtcCompiler":
    """A compiler for one architecture.

    Raises:
        EnvironmentProblem: NVRTC or its headers are missing, or it does not know the architecture.
    """
    nvrtc = _nvrtc()
    version: tuple[int, int] = nvrtc.getVersion()
    known = [f"sm_{number}" for number in nvrtc.getSupportedArchs()]
    if re.sub(r"[af]$", "", device.arch) not in known:
        raise EnvironmentProblem(
            f"NVRTC {version[0]}.{version[1]} does not compile for {device.arch}; "
            f"it knows {', '.join(known)}"
        )
    return NvrtcCompiler(nvrtc, device.arch, _include_folders(version), version)


class NvrtcCompiler:
    """Compiles for one architecture; equal machine code comes out byte for byte equal.

    A cubin changes neither with macros that nothing reads, nor with comments or the file's name.
    """

    def __init__(
        self,
        nvrtc: ModuleType,
        arch: str,
        folders: tuple[Path, ...],
        version: tuple[int, int],
    ) -> None:
        self._nvrtc = nvrtc
        self._said = (*version, arch)
        self._capability = int(re.sub(r"\D", "", arch))
        self._folders = folders
        self._fixed = (
            f"-arch={arch}",
            *(f"-I{folder}" for folder in folders),
            "--ptxas-options=-v",
        )
        self._not_quickly: set[str] = set()
        """Sources that compile, but not as :meth:`_quickly` does."""
        self._headers = PrecompiledHeaders(nvrtc, folders) if version >= precompiled.SINCE else None

    @property
    def fingerprint(self) -> str:
        """What decides a result beside the build: NVRTC, architecture, and how reports are read."""
        ours = hashlib.sha256()
        read = (device_code.__file__, includes.__file__, sources.__file__)
        for file in (*sorted(Path(__file__).parent.glob("*.py")), *map(Path, read)):
            ours.update(file.read_bytes())
        for text in shim_texts():
            ours.update(text)
        return f"nvrtc {self._said} {ours.hexdigest()}"

    def compile(self, build: Build) -> Binary | Rejected:
        """Compile one build, or take its image.

        Usage is the assembler's report with the PTX's launch bounds, or what the image tells.
        """
        if build.image:
            return image.take(build, self._capability)
        if build.compiler == "nvcc":
            return self._with_nvcc(build)
        given = device_program(build, self._folders, hosted=False)
        if given.minimal and given.source not in self._not_quickly:
            made = self._compiled(given, build, quickly=True)
            if isinstance(made, Binary):
                return made
        made = self._compiled(given, build)
        if given.minimal and isinstance(made, Binary):
            self._not_quickly.add(given.source)
        if isinstance(made, Rejected) and not given.hosted and "undefined" in made.detail:
            again = self._compiled(device_program(build, self._folders, hosted=True), build)
            return again if isinstance(again, Binary) else made
        return made

    def _compiled(
        self, given: DeviceProgram, build: Build, *, quickly: bool = False
    ) -> Binary | Rejected:
        """Compile a program; ``quickly`` what NVRTC's minimal mode and parsed headers allow."""
        for file, text in ((build.file, given.source), *given.headers.items()):
            if problem := include_violation(file, text):
                return compile_error(problem)
        began = time.perf_counter()
        options = [
            *self._fixed,
            *given.options,
            *([_MINIMAL] if quickly else []),
            *_standard(build),
            *build.options,
        ]
        macros = {name: str(value) for name, value in (*build.macros, *build.defines)}
        source = given.source
        replaced = None
        if quickly and self._headers is not None and not given.options:
            replaced = self._headers.applied(source, given.headers, macros, options)
        if replaced:
            source, macros = replaced[0], {}
            options.append(replaced[1])
        options += [f"-D{name}={value}" for name, value in macros.items()]
        program = self._nvrtc.createProgram(
            source,
            _NOWHERE + build.file,
            tuple(text.encode() for text in given.headers.values()),
            tuple(name.encode() for name in given.headers),
        )
        try:
            return self._compile(program, build, given, options, began)
        finally:
            self._nvrtc.destroyProgram(program)

    def _compile(
        self,
        program: int,
        build: Build,
        given: DeviceProgram,
        options: Sequence[str],
        began: float,
    ) -> Binary | Rejected:
        variables = {name: f"&{name}" for name in build.variables}
        for expression in (*build.entries, *variables.values()):
            self._nvrtc.addNameExpression(program, expression)
        try:
            self._nvrtc.compileProgram(program, tuple(options))
        except self._nvrtc.NVRTCError as error:
            log = self._nvrtc.getProgramLog(program).rstrip("\0")
            if error.status != _BAD_SOURCE:
                raise EnvironmentProblem(f"NVRTC failed ({error}): {log.strip()}") from None
            return _explained(log, build, given.missing)
        symbols = {entry: self._nvrtc.getLoweredName(program, entry) for entry in build.entries}
        named = {
            name: self._nvrtc.getLoweredName(program, expression)
            for name, expression in variables.items()
        }
        text = self._nvrtc.getPTX(program).decode(errors="replace")
        report, code = self._nvrtc.getProgramLog(program), self._nvrtc.getCUBIN(program)
        return _binary(build, began, CompilerOutput(code, text, report, symbols, named))

    def _with_nvcc(self, build: Build) -> Binary | Rejected:
        began = time.perf_counter()
        fixed = [f"-arch={self._said[-1]}", "-Xptxas", "-v", *_standard(build)]
        made = compile_with_nvcc(build, fixed)
        return made if isinstance(made, Rejected) else _binary(build, began, made)


def _standard(build: Build) -> list[str]:
    named = any(option.lstrip("-").startswith("std") for option in build.options)
    return [] if named else [STANDARD]


def _binary(build: Build, began: float, made: CompilerOutput) -> Binary:
    ptx = code_of(made.ptx)
    usage, sizes = usage_by_symbol(made.report, ptx), variable_bytes(ptx)
    return Binary(
        build=build.digest,
        code=made.code,
        usage=tuple((entry, usage.get(name, Usage())) for entry, name in made.entries.items()),
        symbols=(*made.entries.items(), *made.variables.items()),
        variable_bytes=tuple((n, sizes[s]) for n, s in made.variables.items() if s in sizes),
        compile_seconds=time.perf_counter() - began,
        persists=persists(ptx),
        reaches=reaches(ptx, made.variables.values()),
        lasting=tuple(
            (symbol, size)
            for symbol, size in lasting_variables(ptx).items()
            if symbol not in made.variables.values()  # which the bench writes
        ),
        shares=shares(ptx),
        synchronises=synchronises(ptx),
    )


def usage_by_symbol(report: str, ptx: str) -> Mapping[str, Usage]:
    """Usage of every kernel in the assembler's ``-v`` report, by its name in the binary.

    Args:
        report: what ``ptxas -v`` printed.
        ptx: the same program's PTX, less its comments, which alone tells ``__launch_bounds__`` and
            how buffers are accessed.
    """
    _, *parts = _ENTRY.split(report)
    symbols, texts = parts[::2], parts[1::2]
    usage = image.ptx_usage(ptx, symbols)
    for symbol, text in zip(symbols, texts, strict=True):
        frame, used, shared = _FRAME.search(text), _USED.search(text), _SHARED.search(text)
        usage[symbol] = replace(
            usage[symbol],
            registers=int(used[1]) if used else None,
            spill_bytes=int(frame[2]) if frame else None,
            stack_bytes=int(frame[1]) if frame else None,
            static_shared_bytes=int(shared[1]) if shared else 0,
        )
    return usage


def _explained(log: str, build: Build, missing_headers: Sequence[str]) -> Rejected:
    """A failed compile in the compiler's words, less its report and its internal file names."""
    lines = [
        line
        for line in log.replace(_NOWHERE, "").strip().splitlines()
        if not line.startswith(("ptxas info", "ptxas         ."))
    ]
    text = "\n".join(lines).strip()
    for names, mark, kind, hint in (
        (build.variables, "&", "variable", "__constant__ or __device__"),
        (build.entries, "", "kernel", "a __global__ function, or an instance"),
    ):
        missing = [name for name in names if f"#pragma nv_mangled_name {mark}{name}\n" in text]
        if missing:
            text = re.sub(r"__nv_name_map\(\d+\)", "entry", text)
            text = f"{build.file} has no {kind} {', '.join(missing)} ({hint})\n{text}"
    if missing_headers:
        text += f"\n(taken as empty, since no folder has them: {', '.join(missing_headers)})"
    if "uses too much shared data" in text:
        return Rejected(stage=Stage.LIMITS, code=Code.SHARED_MEMORY, detail=text)
    return compile_error(text)


def _nvrtc() -> ModuleType:
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        raise cupy_problem(error) from None
    try:
        nvrtc.getVersion()
    except (RuntimeError, OSError) as error:
        raise EnvironmentProblem(f"NVRTC does not load ({error}): {REMEDY}") from None
    module: ModuleType = nvrtc
    return module


def _include_folders(version: tuple[int, int]) -> tuple[Path, ...]:
    """Where the toolchain's headers are: the wheels' folder, or else an installed toolkit's."""
    major, minor = version
    wheels = find_spec("nvidia")
    roots = [
        *(
            Path(place) / f"cu{major}"
            for place in (wheels and wheels.submodule_search_locations) or ()
        ),
        Path(f"/usr/local/cuda-{major}.{minor}"),
        Path("/usr/local/cuda"),
    ]
    found = [root / "include" for root in roots if (root / "include" / "cuda_fp16.h").is_file()]
    if found:
        include = min(found, key=lambda folder: not (folder / "cccl").is_dir())
        return tuple(folder for folder in (include, include / "cccl") if folder.is_dir())
    raise EnvironmentProblem(
        f"the CUDA {major} headers are missing (cuda_fp16.h is in none of "
        f"{', '.join(str(root / 'include') for root in roots)}): {REMEDY}"
    )
