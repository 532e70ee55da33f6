"""What NVRTC is given of a build: its device code, and stand-ins for the headers that it lacks.

An application's file is written for a host compiler too. Its host code is cut out, standard
headers are replaced by a prelude, PyTorch's and CUB's by small headers of our own, and any other
missing header by an empty one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

from tuner.csource.device_code import device_code
from tuner.csource.includes import includes
from tuner.plan import Build

SHIMS = Path(__file__).with_name("shims")
PRELUDE = "kernelwright/prelude.h"

_TORCH = re.compile(r"(?:torch|ATen|c10)/.*")
_LIBRARY = re.compile(r"cu(?:blas|dnn|sparse|solver|fft).*")
_HOST_ONLY = re.compile(
    r"cuda\.h|cuda_\w+_interop\.h|cuda_profiler_api\.h|cuda(?:GL|EGL|VDPAU)\w*\.h"
    r"|cu(?:rand|file|pti)\.h|nv(?:ml|rtc|jpeg|JitLink)\.h|npp\w*\.h|nvToolsExt\w*\.h|(?:nvtx3|thrust)/.*"
)
"""Headers of the toolchain that cannot be compiled for the device alone."""
_DEPENDENCE = re.compile(
    r"\bcuda(?:GridDependencySynchronize|TriggerProgrammaticLaunchCompletion)\b"
)
_DEVICE_RUNTIME = "cuda_device_runtime_api.h"
"""What defines them; NVRTC, unlike nvcc, does not include it by itself."""
_MORE = re.compile(
    r"\b(?:cuda[A-Z]|CUDART|CUDA_|CU_|tex|surf)\w"
    r"|__(?:CUDART|CUDACC_RTC_MINIMAL|TEXTURE|SURFACE)|<<<"
)
"""Names of textures, surfaces, the runtime's types and macros, and launches by a kernel."""
_GROUPS_HEADER = re.compile(r"cooperative_groups(?:/\w+)?\.h")
"""Headers of the toolchain that take seconds to compile."""
_GROUPS = re.compile(r"\bcooperative_groups\b(?!(?:/\w+)?\.h)")
"""Use of what they declare."""

_STD_NAME = re.compile(r"\bstd\s*::\s*([a-z_]\w*)")


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """Source, in-memory headers by name, further options, and headers taken as empty.

    ``hosted`` tells whether it has what a host compiler would declare in every file; ``minimal``
    whether it may do without the names that NVRTC's option of that name leaves out.
    """

    source: str
    headers: Mapping[str, str]
    options: tuple[str, ...]
    missing: tuple[str, ...]
    hosted: bool
    minimal: bool


def device_program(build: Build, folders: Sequence[Path], *, hosted: bool) -> DeviceProgram:
    """The program of a build; the same for all that differ in macros and options alone.

    Args:
        build: the source as it stands, and the headers recorded with it.
        folders: the toolchain's headers.
        hosted: declare what a host compiler would, even if the source shows no need.
    """
    names = (*build.entries, *build.variables)
    return _program(build.file, build.source, build.headers, names, tuple(folders), hosted=hosted)


@lru_cache(maxsize=32)
def _program(
    file: str,
    source: str,
    recorded: tuple[tuple[str, str], ...],
    names: tuple[str, ...],
    folders: tuple[Path, ...],
    *,
    hosted: bool,
) -> DeviceProgram:
    code = device_code(file, source, recorded, names)
    headers = dict(code.headers)
    texts = (code.source, *headers.values())
    wanted = dict.fromkeys(
        include.name for text in texts for include in includes(text) if include.name not in headers
    )
    prelude = _text(SHIMS / "prelude.h")
    used = {name for text in texts for name in _STD_NAME.findall(text)}
    beyond = bool(used - set(re.findall(r"\w+", prelude)))
    stand_ins = {}
    no_groups = code.cut and not any(_GROUPS.search(text) for text in texts)
    for name in wanted:
        if no_groups and _GROUPS_HEADER.fullmatch(name):
            stand_ins[name] = "\n"
            continue
        text = _stand_in(name, folders, beyond_prelude=beyond)
        if _TORCH.fullmatch(name) and any("Float8_" in one for one in texts):
            text = '#include "kernelwright/torch.h"\n#include "kernelwright/torch_float8.h"\n'
        if text is not None:
            stand_ins[name] = text
    hosted = hosted or code.cut or bool(stand_ins)
    options = []
    if any(_DEPENDENCE.search(text) for text in texts):
        options.append(f"--pre-include={_DEVICE_RUNTIME}")
    if not hosted:
        minimal = not any(_MORE.search(text) for text in texts)
        return DeviceProgram(
            code.source, MappingProxyType(headers), tuple(options), (), hosted, minimal
        )
    shims = {f"kernelwright/{file.name}": _text(file) for file in sorted(SHIMS.glob("*.h"))}
    options.append(f"--pre-include={PRELUDE}")
    if code.cut:  # NVRTC refuses constexpr functions without an annotation
        options.append("--device-as-default-execution-space")
    return DeviceProgram(
        code.source,
        MappingProxyType({**headers, **stand_ins, **shims}),
        tuple(options),
        tuple(name for name, text in stand_ins.items() if not text),
        hosted,
        minimal=False,
    )


def shim_texts() -> Iterable[bytes]:
    """The contents of the stand-ins, which decide a result too."""
    return (file.read_bytes() for file in sorted(SHIMS.glob("*.h")))


def _stand_in(name: str, folders: Sequence[Path], *, beyond_prelude: bool) -> str | None:
    """The text for a header; ``None`` if the toolchain has it, or no name may be looked up."""
    if name.startswith(("/", "~")) or ".." in name or ":" in name:
        return None
    if _TORCH.fullmatch(name):
        return '#include "kernelwright/torch.h"\n'
    if _LIBRARY.fullmatch(name):  # they bring the half-precision types along
        return "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    if name in ("cub/cub.cuh", "cub/cub.h"):
        return '#include "kernelwright/cub.h"\n'

    def has(file: str) -> bool:
        return any((folder / file).is_file() for folder in folders)

    if has(name) and not _HOST_ONLY.fullmatch(name):
        return None
    if beyond_prelude and has(f"cuda/std/{name}"):
        return f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
    return ""


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
