"""Compiles CUDA C++ with the toolkit's ``nvcc``: the very file, host code included.

Owns the command line, the folder that it runs in, and how an instance's name in the binary is
found. Source and headers are written to that folder; nothing else of this machine's files is given.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.csource.includes import with_recorded_names
from tuner.errors import EnvironmentProblem
from tuner.files import inside
from tuner.integrity.include_rules import include_violation
from tuner.plan import Build
from tuner.trial import Code, Rejected, Stage

_PLACES = ("/usr/local/cuda/bin",)
_MARKER = "kernelwright_entry_"
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_HELD = re.compile(r"\.(?:global|const)\s[^;={]*?\b([\w$]+)(?:\[\d*\])?\s*[;=]")
_DETAIL_CHARACTERS = 8000


@dataclass(frozen=True, slots=True)
class CompilerOutput:
    """What a build became: machine code, PTX, the assembler's report, and names in the binary."""

    code: bytes
    ptx: str
    report: str
    entries: Mapping[str, str]
    variables: Mapping[str, str]


def compile_with_nvcc(build: Build, options: Sequence[str]) -> CompilerOutput | Rejected:
    """Compile one build; ``options`` are the architecture and what every build gets.

    Raises:
        EnvironmentProblem: there is no toolkit, or no demangler.
    """
    nvcc, demangler = _tool("nvcc"), _tool("c++filt")
    given = dict(build.headers)
    files = {
        build.file: with_recorded_names(build.file, build.source, given) + _markers(build.entries),
        **{name: with_recorded_names(name, text, given) for name, text in given.items()},
    }
    for name, text in files.items():
        if problem := include_violation(name, text):
            return _rejected(problem)
    with TemporaryDirectory(prefix="kernelwright-") as name:
        folder = Path(name)
        for file, text in files.items():
            place = inside(folder, file)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        command = [nvcc, "-x", "cu", "-cubin", "--keep", "--keep-dir", name, "-I", name]
        macros = (*build.macros, *build.defines)
        command += [*options, *build.options, *(f"-D{n}={value}" for n, value in macros)]
        command += ["-o", str(folder / "out.cubin"), str(folder / build.file)]
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        report = ran.stdout + ran.stderr
        if ran.returncode:
            return _rejected(report.replace(f"{name}/", "").strip())
        ptx = "\n".join(file.read_text(errors="replace") for file in folder.glob("*.ptx"))
        code = (folder / "out.cubin").read_bytes()
    names = _demangled(_ENTRY.findall(ptx), demangler)
    entries = {entry: _symbol(at, names) for at, entry in enumerate(build.entries)}
    held = {name: symbol for symbol, name in _demangled(_HELD.findall(ptx), demangler).items()}
    variables = {name: held.get(name.removeprefix("::"), "") for name in build.variables}
    for kind, found in (("kernel", entries), ("variable", variables)):
        if missing := [name for name, symbol in found.items() if not symbol]:
            return _rejected(f"{build.file} has no {kind} {', '.join(missing)}")
    return CompilerOutput(code, ptx, report, entries, variables)


def _markers(entries: Sequence[str]) -> str:
    """Code behind the source that instantiates each entry, and whose name tells the entry's."""
    lines = (
        f"template <auto KERNEL> __global__ void {_MARKER}{at}() {{}}\n"
        f"template __global__ void {_MARKER}{at}<&{entry}>();"
        for at, entry in enumerate(entries)
    )
    return "\n" + "\n".join(lines) + "\n"


def _symbol(number: int, names: Mapping[str, str]) -> str:
    """The name in the binary of the entry that a marker was made for; empty if it is not there."""
    marker = re.compile(rf"\b{_MARKER}{number}<&\(?(.*?)\)?>\(\)$")
    wanted = next((found[1] for name in names.values() if (found := marker.search(name))), "")
    for symbol, name in names.items():
        if _MARKER not in symbol and wanted in (name, f"({name})"):
            return symbol
    plain = wanted.partition("(")[0].rpartition(" ")[2]
    return plain if plain in names else ""  # extern "C"


def _demangled(symbols: Sequence[str], tool: str) -> dict[str, str]:
    ran = subprocess.run(
        [tool], input="\n".join(symbols), capture_output=True, text=True, check=True
    )
    return dict(zip(symbols, ran.stdout.splitlines(), strict=False))


def _tool(name: str) -> str:
    found = shutil.which(name) or next(
        (path for folder in _PLACES if (path := shutil.which(name, path=folder))), None
    )
    if found is None:
        raise EnvironmentProblem(
            f"'compiler: nvcc' needs {name}, which is not installed: install the CUDA toolkit and "
            "a C++ compiler, or leave the compiler out"
        )
    return found


def _rejected(detail: str) -> Rejected:
    return Rejected(
        stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail=detail[:_DETAIL_CHARACTERS]
    )
