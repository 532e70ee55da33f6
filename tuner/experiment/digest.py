"""The identity of a baseline kernel."""

import hashlib
import json

from tuner.experiment.model import Kernel


def kernel_digest(kernel: Kernel) -> str:
    """SHA-256 in hex over language, entry, source, options, headers and binary.

    Recorded transcripts hold it: a change of its value voids them.
    """
    parts: list[object] = [
        kernel.language,
        kernel.entry,
        kernel.source.text,
        list(kernel.options),
        [list(header) for header in kernel.headers],
    ]
    if kernel.binary is not None:
        parts.append([kernel.binary.file.sha256, *map(list, kernel.binary.symbols.items())])
    if kernel.compiler or kernel.defines:
        parts.append([kernel.compiler, *map(list, kernel.defines.items())])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
