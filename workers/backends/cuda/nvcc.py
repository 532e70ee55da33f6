"""Compiles CUDA C++ with the toolkit's ``nvcc``: the very file, host code included.

Owns the command line, the folder that it runs in, and how an instance's name in the binary is
found. Source and headers are written to that folder; nothing else of this machine's files is given.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.errors import EnvironmentProblem
from tuner.plan import Build
from tuner.trial import Rejected
from workers.backends.cuda.installation import program
from workers.compilers.sources import checked_texts, compile_error, write_files

_MARKER = "kernelwright_entry_"
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_HELD = re.compile(r"\.(?:global|const)\s[^;={]*?\b([\w$]+)(?:\[\d*\])?\s*[;=]")


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
    checked = checked_texts(build)
    if isinstance(checked, Rejected):
        return checked
    source, headers = checked
    with TemporaryDirectory(prefix="kernelwright-") as name:
        folder = Path(name)
        write_files(folder, {**headers, build.file: source + _markers(build.entries)})
        command = [nvcc, "-x", "cu", "-cubin", "--keep", "--keep-dir", name, "-I", name]
        macros = (*build.macros, *build.defines)
        command += [*options, *build.options, *(f"-D{n}={value}" for n, value in macros)]
        command += ["-o", str(folder / "out.cubin"), str(folder / build.file)]
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        report = ran.stdout + ran.stderr
        if ran.returncode:
            return compile_error(report.replace(f"{name}/", "").strip())
        ptx = "\n".join(file.read_text(errors="replace") for file in folder.glob("*.ptx"))
        code = (folder / "out.cubin").read_bytes()
    names = _demangled(_ENTRY.findall(ptx), demangler)
    entries = {entry: _symbol(at, names) for at, entry in enumerate(build.entries)}
    held = {name: symbol for symbol, name in _demangled(_HELD.findall(ptx), demangler).items()}
    variables = {name: held.get(name.removeprefix("::"), "") for name in build.variables}
    for kind, found in (("kernel", entries), ("variable", variables)):
        if missing := [name for name, symbol in found.items() if not symbol]:
            return compile_error(f"{build.file} has no {kind} {', '.join(missing)}")
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
    found = program(name)
    if found is None:
        raise EnvironmentProblem(
            f"'compiler: nvcc' needs {name}, which is not installed: install the CUDA toolkit and "
            "a C++ compiler, or leave the compiler out"
        )
    return found
