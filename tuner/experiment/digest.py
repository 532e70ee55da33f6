"""The identity of a baseline kernel."""

import hashlib
import json

from tuner.experiment.model import Kernel


def kernel_digest(kernel: Kernel) -> str:
    """SHA-256 in hex over language, entry, source, options and headers.

    Recorded transcripts hold it: a change of its value voids them.
    """
    parts = [
        kernel.language,
        kernel.entry,
        kernel.source.text,
        list(kernel.options),
        [list(header) for header in kernel.headers],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
