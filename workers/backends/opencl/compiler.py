"""OpenCL compilation through pyopencl, on the device's own platform.

Owns the way from a build to the driver's binary, and the driver's words put into the user's lines.
Runs in a compile process; knows nothing of buffers and launches.
"""

import re
import time
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuner.backends.opencl import OPENCL
from tuner.csource.lasting_variables import lasting_variables
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.integrity.source_rules import unseen_names
from tuner.plan import Binary, Build, Usage
from tuner.trial import Rejected
from workers.backends.opencl.native_code import has_lasting_memory, intrinsics
from workers.backends.opencl.platforms import opencl_devices
from workers.compilers.sources import checked_texts, compile_error, write_files

_MESSAGE = re.compile(
    r"^(error|warning|note): (.+?:\d+:\d+)(?: <Spelling=.*?:\d+:\d+>)?: (.*)$", re.MULTILINE
)

_POISONED = "attempt to use a poisoned identifier"

_NONE = (
    "none, and the compiler told no error: either there is none, or it gave up, as PoCL does with "
    "vectors that are too long for it"
)


def open_compiler(device: Device) -> "OpenCLCompiler":
    """A compiler for the first device here of this model.

    Raises:
        EnvironmentProblem: this machine has no such device.
    """
    for handle in opencl_devices():
        if handle.name.strip() == device.name:
            return OpenCLCompiler(handle)
    raise EnvironmentProblem(f"no OpenCL device named {device.name!r} on this machine")


class OpenCLCompiler:
    """Compiles OpenCL C to the driver's binary format."""

    fingerprint: str | None = None

    def __init__(self, handle: Any) -> None:
        import pyopencl as cl

        self._cl = cl
        self._handle = handle
        self._context = cl.Context([handle])

    def compile(self, build: Build) -> Binary | Rejected:
        """Compile one build; see :class:`workers.compilers.port.Compiler`."""
        checked = checked_texts(build)
        if isinstance(checked, Rejected):
            return checked
        source, headers = checked
        cl = self._cl
        began = time.perf_counter()
        file = build.file.replace("\\", "/").replace('"', "'").replace("\n", " ")
        # The driver also looks for includes in the current folder, whatever lies there.
        with TemporaryDirectory(prefix="kernelwright-") as folder, chdir(folder):
            options = [f"-D{name}={value}" for name, value in build.defines]
            options += [*build.options, *(["-I", folder] if headers else [])]
            write_files(Path(folder), headers)
            unseen = " ".join(unseen_names((source, *headers.values()), OPENCL))
            # As if in a system header: without warnings of names that are macros.
            text = f'# 1 "names" 3\n#pragma GCC poison {unseen}\n# 1 "{file}"\n{source}'
            program = cl.Program(self._context, text)
            try:
                program.build(options=options, devices=[self._handle])
            except cl.Error as error:
                return compile_error(_compiler_words(str(error)))
        names = program.get_info(cl.program_info.KERNEL_NAMES).split(";")
        for entry in build.entries:
            if entry not in names:
                found = ", ".join(filter(None, names)) or _NONE
                return compile_error(f"{build.file} has no kernel named {entry!r}; found: {found}")
        (code,) = program.get_info(cl.program_info.BINARIES)
        texts = (source, *headers.values())
        lasting = has_lasting_memory(code) or any(map(lasting_variables, texts))
        reaches = ["variables that outlast a launch"] if lasting else []
        return Binary(
            build=build.digest,
            code=code,
            usage=tuple((entry, self._usage(program, entry)) for entry in build.entries),
            symbols=tuple((entry, entry) for entry in build.entries),
            compile_seconds=time.perf_counter() - began,
            reaches=(*reaches, *intrinsics(code)),
        )

    def _usage(self, program: Any, entry: str) -> Usage:
        kinds = self._cl.kernel_work_group_info
        kernel = self._cl.Kernel(program, entry)
        return Usage(
            static_shared_bytes=kernel.get_work_group_info(kinds.LOCAL_MEM_SIZE, self._handle),
            max_threads_per_block=kernel.get_work_group_info(kinds.WORK_GROUP_SIZE, self._handle),
        )


def _compiler_words(text: str) -> str:
    """The compiler's own messages, as ``file:line:column: error: …``."""
    text = text.replace(_POISONED, "a macro may not make this word")
    messages = [f"{place}: {kind}: {words}" for kind, place, words in _MESSAGE.findall(text)]
    return "\n".join(messages) or text.strip()
