"""The port of a compiler: a build in, machine code or a reason out.

Runs inside a compile process (:mod:`workers.compilers.worker`). A backend's compiler is a module
with one function, ``open_compiler(device: Device) -> Compiler``:
``workers.backends.opencl.compiler`` and ``workers.backends.cuda.compiler``. It obeys
``tests/conformance/compiler.py``.
"""

from typing import Protocol

from tuner.plan import Binary, Build
from tuner.trial import Rejected


class Compiler(Protocol):
    """Compiles for one device model."""

    def compile(self, build: Build) -> Binary | Rejected:
        """Compile one build.

        A source that does not compile, or lacks an entry, is a ``Rejected`` of stage
        ``compile`` whose detail shows the compiler's words with the user's own file and line
        numbers. Raises
        :class:`tuner.errors.EnvironmentProblem` if the toolchain is not there.
        """
        ...
