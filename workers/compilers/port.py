"""The port of a compiler: a build in, machine code or a reason out.

Runs inside a compile process (:mod:`workers.compilers.worker`); obeys
``tests/conformance/compiler.py``.
"""

from typing import Protocol

from tuner.plan import Binary, Build
from tuner.trial import Rejected


class Compiler(Protocol):
    """Compiles for one device model."""

    @property
    def fingerprint(self) -> str | None:
        """What decides a binary beside its build: compiler, version, architecture.

        ``None`` where binaries must not be kept from run to run, since a candidate could write
        files and so forge them.
        """

    def compile(self, build: Build) -> Binary | Rejected:
        """Compile one build.

        A source that does not compile, or lacks an entry, is a ``Rejected`` of stage ``compile``
        with the compiler's words and the user's own file and line numbers.

        Raises:
            EnvironmentProblem: the toolchain is missing.
        """
